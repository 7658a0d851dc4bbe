package hubspottest

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// cell is one subscription of one address; preferences belong to the address, not to a
// contact.
type cell struct {
	email        string
	subscription int64
}

type status struct {
	state       string
	source      string
	at          time.Time
	basis       string
	explanation string
}

type wideCell struct {
	email        string
	businessUnit int64 // 0: the whole portal
}

type wideStatus struct {
	state string
	at    time.Time
}

const (
	stateSubscribed   = "SUBSCRIBED"
	stateUnsubscribed = "UNSUBSCRIBED"
	stateUnspecified  = "NOT_SPECIFIED"
)

// statusWrite is one input of a write.
type statusWrite struct {
	Subscriber   string `json:"subscriberIdString"`
	Channel      string `json:"channel"`
	State        string `json:"statusState"`
	Subscription int64  `json:"subscriptionId"`
	Basis        string `json:"legalBasis"`
	Explanation  string `json:"legalBasisExplanation"`
}

// preferences serves /communication-preferences/{v}/….
func (c *call) preferences(path []string) {
	method := c.r.Method
	switch {
	case len(path) == 1 && path[0] == "definitions" && method == http.MethodGet:
		c.definitions()
	case len(path) >= 2 && path[0] == "statuses" && path[1] == "batch":
		c.preferenceBatch(strings.Join(path[2:], "/"))
	case len(path) == 2 && path[0] == "statuses" && method == http.MethodGet:
		c.envelope(http.StatusOK, c.statusesOf(path[1]), nil)
	case len(path) == 2 && path[0] == "statuses" && method == http.MethodPost:
		c.writeOne(path[1])
	case len(path) == 3 && path[0] == "statuses" && path[2] == "unsubscribe-all" && method == http.MethodGet:
		c.envelope(http.StatusOK, c.wideOf(path[1]), nil)
	case len(path) == 3 && path[0] == "statuses" && path[2] == "unsubscribe-all" && method == http.MethodPost:
		c.unsubscribeAll(path[1])
		results := []any{}
		if c.query.Get("verbose") == "true" {
			results = c.wideOf(path[1])
		}
		c.envelope(http.StatusOK, results, nil)
	default:
		c.notFound()
	}
}

func (c *call) preferenceBatch(operation string) {
	if c.a.Plan != Enterprise {
		c.fail(http.StatusForbidden, "MISSING_SCOPES", "This app hasn't been granted all required scopes to make this call.")
		return
	}
	if c.r.Method != http.MethodPost {
		c.notFound()
		return
	}
	switch operation {
	case "write":
		c.writeMany()
	case "read":
		c.readMany(func(email string) []any { return c.statusesOf(email) })
	case "unsubscribe-all/read":
		c.readMany(func(email string) []any { return c.wideOf(email) })
	case "unsubscribe-all":
		c.readMany(func(email string) []any {
			c.unsubscribeAll(email)
			if c.query.Get("verbose") == "true" {
				return c.wideOf(email)
			}
			return nil
		})
	default:
		c.notFound()
	}
}

func (c *call) definitions() {
	results := []any{}
	for _, d := range c.a.Definitions {
		if bu := c.query.Get("businessUnitId"); bu != "" && bu != strconv.FormatInt(d.BusinessUnitID, 10) {
			continue
		}
		results = append(results, map[string]any{
			"id": strconv.FormatInt(d.ID, 10), "name": d.Name, "isActive": !d.Inactive, "businessUnitId": d.BusinessUnitID,
			"communicationMethod": "EMAIL", "purpose": "Marketing", "isInternal": false, "isDefault": false,
		})
	}
	c.write(http.StatusOK, map[string]any{"status": "COMPLETE", "results": results})
}

func (c *call) writeOne(email string) {
	var w statusWrite
	if !c.decode(&w) {
		return
	}
	w.Subscriber = email
	if problem := c.invalidWrite(w); problem != nil {
		c.fail(http.StatusBadRequest, "VALIDATION_ERROR", problem["message"].(string), map[string]any{"context": problem["context"]})
		return
	}
	c.envelope(http.StatusOK, []any{c.apply(w)}, nil)
}

// writeMany answers 200 with the errors inside the body.
func (c *call) writeMany() {
	var b struct {
		Inputs []statusWrite `json:"inputs"`
	}
	if !c.decode(&b) || c.tooMany(len(b.Inputs)) {
		return
	}
	var results, errors []any
	for _, w := range b.Inputs {
		if problem := c.invalidWrite(w); problem != nil {
			errors = append(errors, problem)
			continue
		}
		results = append(results, c.apply(w))
	}
	c.envelope(http.StatusOK, results, errors)
}

func (c *call) invalidWrite(w statusWrite) map[string]any {
	context := map[string][]string{"subscriberIdString": {w.Subscriber}, "subscriptionId": {strconv.FormatInt(w.Subscription, 10)}}
	d, known := c.a.defs[w.Subscription]
	switch {
	case w.Channel != "EMAIL":
		return inputError("VALIDATION_ERROR", "channel is not EMAIL", context)
	case w.State != stateSubscribed && w.State != stateUnsubscribed && w.State != stateUnspecified:
		return inputError("VALIDATION_ERROR", "statusState is invalid", context)
	case !validEmail(w.Subscriber):
		return inputError("VALIDATION_ERROR", "Invalid email "+w.Subscriber+" INVALID_EMAIL", context)
	case !known || d.Inactive:
		return inputError("VALIDATION_ERROR", "Subscription definition does not exist", context)
	}
	return nil
}

func validEmail(text string) bool {
	at := strings.LastIndexByte(text, '@')
	return at > 0 && strings.IndexByte(text, '@') == at && strings.Contains(text[at:], ".") && !strings.ContainsAny(text, " \t\r\n")
}

// apply writes one preference and returns its PublicStatus. There is no precondition,
// and a subscribe resubscribes a person who opted out.
func (c *call) apply(w statusWrite) map[string]any {
	key := cell{strings.ToLower(w.Subscriber), w.Subscription}
	held := c.a.statuses[key]
	reason := "REQUESTED_CHANGE_OCCURRED"
	switch {
	case held != nil && held.state == w.State:
		reason = "NO_STATUS_CHANGE"
		if c.a.NoChangeMovesTimestamp {
			held.at = c.tick(held.at)
		}
		if c.a.NoChangeTakesText {
			held.explanation = w.Explanation
		}
	case held != nil && held.state == stateUnsubscribed && w.State == stateSubscribed:
		reason = "RESUBSCRIBE_OCCURRED"
	}
	if reason != "NO_STATUS_CHANGE" {
		at := c.now
		if held != nil {
			at = c.tick(held.at)
		}
		held = &status{w.State, "PUBLIC_API", at.Truncate(time.Millisecond), w.Basis, w.Explanation}
		c.a.statuses[key] = held
		if w.State == stateSubscribed && c.a.SubscribeClearsWide {
			delete(c.a.wide, wideCell{key.email, 0})
			delete(c.a.wide, wideCell{key.email, c.a.defs[w.Subscription].BusinessUnitID})
		}
	}
	line := &c.s.ledger[c.record]
	line.Writes = append(line.Writes, Write{key.email, key.subscription, w.State, reason, w.Explanation})
	public := c.public(key, held)
	public["setStatusSuccessReason"] = reason
	return public
}

// tick is now, and after the last change: the times of one cell only grow.
func (c *call) tick(last time.Time) time.Time {
	now := c.now.Truncate(time.Millisecond)
	if !now.After(last) {
		return last.Add(time.Millisecond)
	}
	return now
}

func (c *call) public(key cell, s *status) map[string]any {
	d := c.a.defs[key.subscription]
	p := map[string]any{
		"subscriberIdString": key.email, "subscriptionId": key.subscription, "channel": "EMAIL", "status": s.state,
		"source": s.source, "timestamp": stamp(s.at), "subscriptionName": d.Name,
	}
	if d.BusinessUnitID != 0 {
		p["businessUnitId"] = d.BusinessUnitID
	}
	if s.basis != "" {
		p["legalBasis"] = s.basis
	}
	if s.explanation != "" && !c.a.HidesExplanation {
		p["legalBasisExplanation"] = s.explanation
	}
	return p
}

// statusesOf lists what is shown for an address: every definition, set or not.
func (c *call) statusesOf(email string) []any {
	results := []any{}
	for _, d := range c.a.Definitions {
		if bu := c.query.Get("businessUnitId"); bu != "" && bu != strconv.FormatInt(d.BusinessUnitID, 10) {
			continue
		}
		key := cell{strings.ToLower(email), d.ID}
		s := c.a.statuses[key]
		if s == nil {
			if c.a.HidesUnspecified {
				continue
			}
			s = &status{state: stateUnspecified}
		}
		p := c.public(key, s)
		if s.at.IsZero() {
			delete(p, "timestamp")
		}
		results = append(results, p)
	}
	return results
}

// readMany serves the batches whose inputs are addresses. Each result names its address
// and holds a list.
func (c *call) readMany(read func(email string) []any) {
	var b struct {
		Inputs []string `json:"inputs"`
	}
	if !c.decode(&b) || c.tooMany(len(b.Inputs)) {
		return
	}
	var results, errors []any
	for _, email := range b.Inputs {
		if !validEmail(email) {
			errors = append(errors, inputError("VALIDATION_ERROR", "Invalid email "+email, map[string][]string{"subscriberIdString": {email}}))
			continue
		}
		results = append(results, read(email)...)
	}
	code := http.StatusOK
	if len(errors) > 0 {
		code = http.StatusMultiStatus
	}
	c.envelope(code, results, errors)
}

// wideOf lists the wide opt-outs of an address; empty: it never opted out of all.
func (c *call) wideOf(email string) []any {
	results := []any{}
	units := append([]int64{0}, c.a.BusinessUnits...)
	for _, unit := range units {
		w := c.a.wide[wideCell{strings.ToLower(email), unit}]
		if w == nil {
			continue
		}
		p := map[string]any{"subscriberIdString": strings.ToLower(email), "wideStatusType": "PORTAL_WIDE", "status": w.state, "timestamp": stamp(w.at)}
		if unit != 0 {
			p["wideStatusType"], p["businessUnitId"] = "BUSINESS_UNIT_WIDE", unit
		}
		results = append(results, p)
	}
	return results
}

func (c *call) unsubscribeAll(email string) {
	unit, err := strconv.ParseInt(c.query.Get("businessUnitId"), 10, 64)
	if err != nil {
		unit = 0
	}
	key := wideCell{strings.ToLower(email), unit}
	if held := c.a.wide[key]; held == nil || held.state != stateUnsubscribed {
		c.a.wide[key] = &wideStatus{stateUnsubscribed, c.now.Truncate(time.Millisecond)}
	}
}
