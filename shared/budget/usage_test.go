package budget

import (
	"testing"
	"time"
)

func TestUsageTellsWhatIsSpent(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(100_000)
	for name, tc := range map[string]struct {
		text string
		want Usage
	}{
		"two slots, one of them too old": {"0,200000,7,0,0,0,0,0,0,0|88000:1:1 95000:2:3|95000:0:5:x", Usage{Known: true, Window: 5, Day: 7}},
		"a new day":                      {"0,100000,7,0,0,0,0,0,0,0||", Usage{Known: true}},
		"closed":                         {"101000,200000,0,0,0,0,0,0,0,0||", Usage{Known: true, ClosedUntil: time.UnixMilli(101_000).UTC()}},
	} {
		if got, err := usageOf(tc.text, now, 11_000); err != nil || got != tc.want {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
	for _, bad := range []string{"x", "1,2|", "a,b,c||", "0,0,0|1:2|"} {
		if _, err := usageOf(bad, now, 11_000); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}
