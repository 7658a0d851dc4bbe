package main

import "time"

// form is how much is measured. Ratios hold at every size; a target that names a size is
// met or missed only where the form has that size.
type form struct {
	rounds  int           // of each contender
	round   time.Duration // of a rate
	clients []int         // of intake; the first one is the target's
	small   int           // pending events of the small backlog
	large   int           // and of the large one
	drain   int           // pending events while relays drain them
	relays  []int         // at once; the last one but in the quick form is the most
	seed    time.Duration // the seed's query is slow: a round of it takes longer
	growth  []int         // pending events
	brands  []int         // brands of a portal
	ages    []int         // settled events for each pending one
	people  []int         // people that are known
	probes  int           // of latency
	cells   [][]string    // what converges, the ones of a group at once
	watch   time.Duration // how long they are watched
}

var forms = map[string]form{
	"quick": {
		rounds: 3, round: 1200 * time.Millisecond, clients: []int{8},
		small: 30_000, large: 300_000, drain: 600_000, relays: []int{2}, seed: 2 * time.Second, growth: []int{5_000, 50_000},
		probes: 25, cells: [][]string{{"live", "busy"}}, watch: 11 * time.Second,
	},
	"standard": {
		rounds: 5, round: 3 * time.Second, clients: []int{8, 1, 32},
		small: 100_000, large: 1_000_000, drain: 600_000, relays: []int{2, 1, 4, 8}, seed: 4 * time.Second, growth: []int{5_000, 50_000, 500_000},
		brands: []int{1, 10, 50}, ages: []int{0, 4, 19}, people: []int{1_000, 10_000, 100_000},
		probes: 100, cells: [][]string{{"optout"}, {"property"}, {"live"}, {"busy"}}, watch: 22 * time.Second,
	},
	"full": {
		rounds: 7, round: 5 * time.Second, clients: []int{8, 1, 32},
		small: 100_000, large: 5_000_000, drain: 600_000, relays: []int{2, 1, 4, 8}, seed: 5 * time.Second, growth: []int{5_000, 10_000, 100_000, 1_000_000, 5_000_000},
		brands: []int{1, 10, 50, 200}, ages: []int{0, 4, 19, 99}, people: []int{1_000, 10_000, 100_000, 1_000_000},
		probes: 200, cells: [][]string{{"optout"}, {"property"}, {"live"}, {"busy"}}, watch: 44 * time.Second,
	},
}
