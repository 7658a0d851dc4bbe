package ops

import (
	"hubsync/shared/hubspot"
	"hubsync/shared/plan"
	"hubsync/shared/postgres"
)

// markerShown says whether an account returns the explanation of a preference: it does if
// any of our own opt-outs comes back with our marker, and it does not if one comes back,
// known by its time, without any explanation.
func markerShown(own []postgres.OwnOptOut, reads map[string]hubspot.ReadResult, env string) string {
	shown := unknown
	for _, o := range own {
		for _, s := range reads[o.EmailKey].Statuses {
			if s.SubscriptionID != o.SubscriptionTypeID || s.State != hubspot.Unsubscribed {
				continue
			}
			if by, ok := plan.OwnOptOutMarker(env, s.Explanation); ok && by == o.Attempt {
				return yes
			}
			if s.Explanation == "" && s.At.Equal(o.At) {
				shown = no
			}
		}
	}
	return shown
}
