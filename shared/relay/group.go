package relay

import (
	"cmp"
	"slices"

	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
)

// group puts events into messages: one portal and lane each, at most
// outbox.MaxMessage, those that travel alone by themselves, urgent lanes first. It is
// pure; the order of events inside a route is kept.
func group(events []postgres.Publishable) [][]postgres.Publishable {
	type route struct {
		portal string
		lane   outbox.Lane
	}
	byRoute := map[route][]postgres.Publishable{}
	var order []route
	var messages [][]postgres.Publishable
	for _, e := range events {
		if e.TravelsAlone {
			messages = append(messages, []postgres.Publishable{e})
			continue
		}
		key := route{e.PortalID, e.Lane}
		if byRoute[key] == nil {
			order = append(order, key)
		}
		byRoute[key] = append(byRoute[key], e)
	}
	for _, key := range order {
		for chunk := range slices.Chunk(byRoute[key], outbox.MaxMessage) {
			messages = append(messages, chunk)
		}
	}
	slices.SortStableFunc(messages, func(a, b []postgres.Publishable) int { return cmp.Compare(a[0].Lane, b[0].Lane) })
	return messages
}
