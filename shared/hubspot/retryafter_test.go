package hubspot

import (
	"strings"
	"testing"
	"time"

	"hubsync/shared/casetest"
)

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"":                               0,
		"   ":                            0,
		"soon":                           0,
		"NaN":                            0,
		"10s":                            0,
		"1, 2":                           0,
		"0":                              time.Second,
		"-5":                             time.Second,
		"-inf":                           time.Second,
		"0.2":                            time.Second,
		"1":                              time.Second,
		" 3 ":                            3 * time.Second,
		"2.5":                            2500 * time.Millisecond,
		"86400":                          24 * time.Hour,
		"86401":                          24 * time.Hour,
		"1e300":                          24 * time.Hour,
		"1e999":                          24 * time.Hour,
		"+Inf":                           24 * time.Hour,
		"9223372036854775808":            24 * time.Hour,
		strings.Repeat("9", 400):         24 * time.Hour,
		"Mon, 04 May 2026 12:00:30 GMT":  30 * time.Second,
		"Mon, 04 May 2026 12:00:00 GMT":  time.Second,
		"Mon, 04 May 2026 11:00:00 GMT":  time.Second,
		"Sat, 04 May 2126 12:00:00 GMT":  24 * time.Hour,
		"Monday, 04-May-26 12:01:00 GMT": time.Minute,
	} {
		casetest.Add()
		if got := RetryAfter(text, testNow); got != want {
			t.Errorf("RetryAfter(%.40q) = %v, want %v", text, got, want)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{"", "0", "-1", "1.5", "1e999", "Mon, 04 May 2026 12:00:30 GMT"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if got := RetryAfter(text, testNow); got != 0 && (got < time.Second || got > 24*time.Hour) {
			t.Errorf("RetryAfter(%q) = %v", text, got)
		}
	})
}
