package hubspot

import (
	"net/http"
	"strconv"
	"time"
)

// RateInfo is what an answer says about the account's limits.
type RateInfo struct {
	Status         int
	Known          bool // Max and Remaining were stated
	Max, Remaining int
	Interval       time.Duration // 0: not stated
	DailyKnown     bool
	DailyMax       int
	DailyRemaining int
	Policy         string        // of a refusal for the limits, UNNAMED if it names none; else empty
	RetryAfter     time.Duration // of a refusal for the limits; 0: not stated
	At             time.Time
}

// report tells the budget what an answer states. Headers are advice: what cannot be
// read counts as not stated.
func (c *Client) report(response *http.Response, he *Error) {
	if c.cfg.OnResponse == nil {
		return
	}
	info := RateInfo{Status: response.StatusCode, Interval: intervalOf(response.Header), At: c.cfg.Clock()}
	info.Max, info.Remaining, info.Known = limitOf(response.Header, "Max", "Remaining")
	info.DailyMax, info.DailyRemaining, info.DailyKnown = limitOf(response.Header, "Daily", "Daily-Remaining")
	if he != nil && (he.Kind == KindRateLimited || he.Kind == KindDailyLimited) {
		info.Policy, info.RetryAfter = he.Policy, he.RetryAfter
		if info.Policy == "" {
			info.Policy = "UNNAMED"
		}
	}
	c.cfg.OnResponse(info)
}

func limitOf(header http.Header, most, remaining string) (int, int, bool) {
	m, err1 := strconv.Atoi(header.Get("X-HubSpot-RateLimit-" + most))
	r, err2 := strconv.Atoi(header.Get("X-HubSpot-RateLimit-" + remaining))
	if err1 != nil || err2 != nil || m < 0 || r < 0 {
		return 0, 0, false
	}
	return m, r, true
}

// intervalOf is the window that the burst limit is counted over; 0: not stated.
func intervalOf(header http.Header) time.Duration {
	ms, err := strconv.Atoi(header.Get("X-HubSpot-RateLimit-Interval-Milliseconds"))
	if err != nil || ms <= 0 || ms > int(retryAfterCap.Milliseconds()) {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}
