package sim

import (
	"slices"
	"time"
)

// This file says what must be, from what was accepted and from what people did inside
// HubSpot. It shares nothing with the product.
//
// An unsubscribe always counts. A subscribe counts unless an opt-out of ours is not older
// than its consent. What counts last decides, unless it is a subscribe and somebody opted
// out inside HubSpot not before its consent, by HubSpot's milliseconds.

// undated is how much older than its arrival a subscribe without a date counts.
const undated = time.Minute

// believed is what the model knows of one cell.
type believed struct {
	subscribed bool
	latest     time.Time // consent of the newest subscribe that counts
	surest     time.Time // the newest consent since the last opt-out of ours
	optedOut   time.Time // consent time of our opt-outs
}

func (a accepted) consent() time.Time {
	at := a.at
	if a.occurred == nil {
		if a.state == "subscribed" {
			at = at.Add(-undated)
		}
	} else if claimed := start.Add(*a.occurred); claimed.Before(at) {
		at = claimed
	}
	return at
}

func (b *believed) take(a accepted) {
	consent := a.consent()
	if a.state == "unsubscribed" {
		b.subscribed = false
		if consent.After(b.optedOut) {
			b.optedOut = consent
		}
		return
	}
	if !consent.After(b.optedOut) {
		return
	}
	if !b.subscribed || consent.After(b.surest) {
		b.surest = consent
	}
	b.subscribed, b.latest = true, consent
}

// must is what HubSpot must show for a cell in the end: one state, or either where the
// run left it open, and why.
type must struct {
	subscribed bool
	open       string
}

func (l *ledger) model() map[cell]must {
	order := slices.Clone(l.accepted)
	slices.SortFunc(order, func(a, b accepted) int { return a.step - b.step })
	cells := map[cell]*believed{}
	for _, a := range order {
		if cells[a.cell] == nil {
			cells[a.cell] = &believed{}
		}
		cells[a.cell].take(a)
	}
	musts := map[cell]must{}
	for c, b := range cells {
		musts[c] = l.judge(c, b)
	}
	return musts
}

// judge lets the opt-outs win that people made inside HubSpot.
func (l *ledger) judge(c cell, b *believed) must {
	m := must{subscribed: b.subscribed}
	if !b.subscribed {
		return m
	}
	p := placeOf(c.brand, c.product)
	for _, a := range l.acts {
		direct := a.kind == "optout" && a.cell == c
		wide := a.kind == "wide" && a.email == c.email && a.covers(address{c.email, p.subscription})
		if !direct && !wide || a.at.Before(b.latest.Truncate(time.Millisecond)) {
			continue
		}
		switch {
		case a.erased != "":
			m.open = "an opt-out inside HubSpot was overwritten there by " + a.erased
		case a.at.Before(b.surest.Truncate(time.Millisecond)):
			m.open = "an opt-out inside HubSpot lies between two consents, the later of which was overtaken"
		default:
			return must{subscribed: false}
		}
	}
	return m
}
