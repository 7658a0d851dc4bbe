package qstashtest

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// evaluate computes an Upstash-Retry-Delay expression: numbers, retried, + - * / and
// parentheses, and the functions below. The result is in milliseconds.
func evaluate(text string, retried int) (float64, error) {
	p := &parser{text: text, vars: map[string]float64{"retried": float64(retried)}}
	value, err := p.sum()
	if err != nil {
		return 0, err
	}
	if p.skip(); p.at != len(p.text) {
		return 0, fmt.Errorf("unexpected %q", p.text[p.at:])
	}
	if math.IsNaN(value) || math.IsInf(value, 0) || value < 0 {
		return 0, fmt.Errorf("the delay is %v", value)
	}
	return value, nil
}

var functions = map[string]func(a ...float64) (float64, bool){
	"pow":   binary(math.Pow),
	"min":   binary(math.Min),
	"max":   binary(math.Max),
	"exp":   unary(math.Exp),
	"sqrt":  unary(math.Sqrt),
	"abs":   unary(math.Abs),
	"floor": unary(math.Floor),
	"ceil":  unary(math.Ceil),
	"round": unary(math.Round),
}

func unary(f func(float64) float64) func(...float64) (float64, bool) {
	return func(a ...float64) (float64, bool) {
		if len(a) != 1 {
			return 0, false
		}
		return f(a[0]), true
	}
}

func binary(f func(a, b float64) float64) func(...float64) (float64, bool) {
	return func(a ...float64) (float64, bool) {
		if len(a) != 2 {
			return 0, false
		}
		return f(a[0], a[1]), true
	}
}

// parser is a recursive descent over sum → product → factor.
type parser struct {
	text string
	at   int
	vars map[string]float64
}

func (p *parser) skip() {
	for p.at < len(p.text) && p.text[p.at] == ' ' {
		p.at++
	}
}

func (p *parser) take(chars string) (byte, bool) {
	p.skip()
	if p.at < len(p.text) && strings.IndexByte(chars, p.text[p.at]) >= 0 {
		p.at++
		return p.text[p.at-1], true
	}
	return 0, false
}

func (p *parser) sum() (float64, error) {
	value, err := p.product()
	for err == nil {
		op, ok := p.take("+-")
		if !ok {
			break
		}
		var right float64
		right, err = p.product()
		if op == '-' {
			right = -right
		}
		value += right
	}
	return value, err
}

func (p *parser) product() (float64, error) {
	value, err := p.factor()
	for err == nil {
		op, ok := p.take("*/")
		if !ok {
			break
		}
		var right float64
		right, err = p.factor()
		if op == '/' {
			value /= right
		} else {
			value *= right
		}
	}
	return value, err
}

func (p *parser) factor() (float64, error) {
	if _, ok := p.take("-"); ok {
		value, err := p.factor()
		return -value, err
	}
	if _, ok := p.take("("); ok {
		value, err := p.sum()
		if _, closed := p.take(")"); err == nil && !closed {
			return 0, fmt.Errorf("missing )")
		}
		return value, err
	}
	p.skip()
	start := p.at
	for p.at < len(p.text) && isWord(p.text[p.at]) {
		p.at++
	}
	word := p.text[start:p.at]
	if word == "" {
		return 0, fmt.Errorf("a value is missing at %d", start)
	}
	if word[0] >= '0' && word[0] <= '9' || word[0] == '.' {
		return strconv.ParseFloat(word, 64)
	}
	if value, ok := p.vars[word]; ok {
		return value, nil
	}
	return p.call(word)
}

func isWord(c byte) bool {
	return c == '.' || c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func (p *parser) call(name string) (float64, error) {
	f, ok := functions[name]
	if _, open := p.take("("); !ok || !open {
		return 0, fmt.Errorf("unknown name %q", name)
	}
	var args []float64
	for {
		value, err := p.sum()
		if err != nil {
			return 0, err
		}
		args = append(args, value)
		if _, more := p.take(","); !more {
			break
		}
	}
	if _, closed := p.take(")"); !closed {
		return 0, fmt.Errorf("missing ) after %s", name)
	}
	value, ok := f(args...)
	if !ok {
		return 0, fmt.Errorf("%s takes another number of values", name)
	}
	return value, nil
}
