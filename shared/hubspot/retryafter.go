package hubspot

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	retryAfterFloor = time.Second
	retryAfterCap   = 24 * time.Hour
)

// RetryAfter reads a Retry-After header: seconds (a fraction is accepted) or an HTTP
// date. It returns 0 where there is none or it makes no sense, and otherwise at least
// a second and at most a day.
func RetryAfter(text string, now time.Time) time.Duration {
	text = strings.TrimSpace(text)
	if text == "" {
		return 0
	}
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		if math.IsNaN(seconds) || seconds < 0 {
			return 0
		}
		if seconds >= retryAfterCap.Seconds() {
			return retryAfterCap
		}
		return max(time.Duration(seconds*float64(time.Second)), retryAfterFloor)
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), retryAfterFloor), retryAfterCap)
}
