package hubspot

import (
	"errors"
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
// date. It returns 0 where there is none or it cannot be read, and otherwise at least
// a second (a time that has passed and a negative number included) and at most a day.
func RetryAfter(text string, now time.Time) time.Duration {
	text = strings.TrimSpace(text)
	if text == "" {
		return 0
	}
	var wait time.Duration
	if seconds, err := strconv.ParseFloat(text, 64); err == nil || isRange(err) {
		if math.IsNaN(seconds) {
			return 0
		}
		// Clamped while it is a float: a huge one does not fit into a Duration.
		wait = time.Duration(min(max(seconds, 0), retryAfterCap.Seconds()) * float64(time.Second))
	} else if at, err := http.ParseTime(text); err == nil {
		wait = at.Sub(now)
	} else {
		return 0
	}
	return min(max(wait, retryAfterFloor), retryAfterCap)
}

// isRange: the number is too large for a float, which is still a number.
func isRange(err error) bool { return errors.Is(err, strconv.ErrRange) }
