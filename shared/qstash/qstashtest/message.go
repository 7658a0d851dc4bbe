package qstashtest

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// message is one message on its way.
type message struct {
	ID          string
	URL         string
	Method      string
	Header      http.Header // as the destination gets them
	Body        []byte
	MaxRetries  int
	RetryDelay  string
	Timeout     time.Duration
	NotBefore   time.Time
	DedupID     string
	Flow        flowSettings
	Label       string
	Callback    string
	FailureURL  string
	FailRetries int
	CreatedAt   time.Time
	Retried     int
	IsCallback  bool
	queue       string
	cancelled   bool
	dlqID       string
	lastStatus  int
	lastHeader  http.Header
	lastBody    []byte
}

// flowSettings are what a message asks of its flow-control key.
type flowSettings struct {
	Key         string
	Parallelism int
	Rate        int
	Period      time.Duration
}

const (
	defaultRetries = 3
	maxRetries     = 100
	defaultTimeout = 2 * time.Hour
	maxBodySize    = 1 << 20
)

var keyText = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)

// newMessage reads a publish request: the destination, its Upstash-* headers, a body.
func newMessage(destination string, header http.Header, body []byte, now time.Time) (*message, error) {
	u, err := url.Parse(destination)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, errors.New("invalid destination url")
	}
	m := &message{
		URL: destination, Method: http.MethodPost, Header: http.Header{}, Body: body, MaxRetries: defaultRetries,
		Timeout: defaultTimeout, NotBefore: now, CreatedAt: now, FailRetries: -1,
		DedupID: header.Get("Upstash-Deduplication-Id"), RetryDelay: header.Get("Upstash-Retry-Delay"),
		Label: header.Get("Upstash-Label"), FailureURL: header.Get("Upstash-Failure-Callback"), Callback: header.Get("Upstash-Callback"),
	}
	if method := header.Get("Upstash-Method"); method != "" {
		m.Method = method
	}
	for name, values := range header {
		if rest, ok := strings.CutPrefix(name, "Upstash-Forward-"); ok {
			m.Header[http.CanonicalHeaderKey(rest)] = values
		}
	}
	if ct := header.Get("Content-Type"); ct != "" && m.Header.Get("Content-Type") == "" {
		m.Header.Set("Content-Type", ct)
	}
	return m, m.settings(header, now)
}

func (m *message) settings(header http.Header, now time.Time) error {
	if strings.Contains(m.DedupID, ":") {
		return errors.New("deduplicationId cannot contain ':'")
	}
	if m.Label != "" && !keyText.MatchString(m.Label) {
		return errors.New("label contains invalid characters")
	}
	if header.Get("Upstash-Content-Based-Deduplication") == "true" && m.DedupID == "" {
		m.DedupID = "content-" + digest(append([]byte(m.URL+"\n"), m.Body...))
	}
	if m.RetryDelay != "" {
		if _, err := evaluate(m.RetryDelay, 0); err != nil {
			return fmt.Errorf("invalid retry delay: %w", err)
		}
	}
	for _, err := range []error{
		wholeNumber(header, "Upstash-Retries", &m.MaxRetries), wholeNumber(header, "Upstash-Failure-Callback-Retries", &m.FailRetries),
		m.delays(header, now), m.Flow.parse(header),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

func wholeNumber(header http.Header, name string, into *int) error {
	text := header.Get(name)
	if text == "" {
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > maxRetries {
		return fmt.Errorf("invalid %s", name)
	}
	*into = n
	return nil
}

func (m *message) delays(header http.Header, now time.Time) error {
	if text := header.Get("Upstash-Timeout"); text != "" {
		d, err := duration(text)
		if err != nil {
			return fmt.Errorf("invalid Upstash-Timeout")
		}
		m.Timeout = d
	}
	if text := header.Get("Upstash-Delay"); text != "" {
		d, err := duration(text)
		if err != nil {
			return fmt.Errorf("invalid Upstash-Delay")
		}
		m.NotBefore = now.Add(d)
	}
	if text := header.Get("Upstash-Not-Before"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("invalid Upstash-Not-Before")
		}
		m.NotBefore = time.Unix(n, 0)
	}
	return nil
}

// duration reads 10s, 2m, 1h, 3d, or seconds.
func duration(text string) (time.Duration, error) {
	if n, err := strconv.Atoi(text); err == nil && n >= 0 {
		return time.Duration(n) * time.Second, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.Atoi(days)
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(text)
}

func (f *flowSettings) parse(header http.Header) error {
	f.Key = header.Get("Upstash-Flow-Control-Key")
	if f.Key == "" {
		return nil
	}
	if !keyText.MatchString(f.Key) {
		return errors.New("flowControlKey contains invalid characters")
	}
	f.Period = time.Second
	for part := range strings.SplitSeq(header.Get("Upstash-Flow-Control-Value"), ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok {
			return errors.New("invalid flow control value")
		}
		var err error
		switch name {
		case "parallelism":
			f.Parallelism, err = strconv.Atoi(value)
		case "rate", "ratePerSecond":
			f.Rate, err = strconv.Atoi(value)
		case "period":
			f.Period, err = duration(value)
		default:
			err = errors.New("unknown")
		}
		if err != nil {
			return fmt.Errorf("invalid flow control value %q", name)
		}
	}
	if f.Parallelism == 0 && f.Rate == 0 {
		return errors.New("flow control needs a parallelism or a rate")
	}
	return nil
}
