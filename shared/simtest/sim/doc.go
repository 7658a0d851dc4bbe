// Package sim runs the whole of hubsync from one seed: the real intake, relay, worker and
// reconcile over a real PostgreSQL, between the emulators and without a socket to them. A
// scheduler lets exactly one of them run at a time, up to its next transaction, call or
// reply; there the seed says who goes on, who dies, who freezes, and what gets lost. Time
// is virtual, in the database too. When the faults are over the world runs until it is
// quiet, and is compared with a model that shares no code with the product.
//
//	make sim                               500 seeds
//	SIM_SEEDS=50 SIM_START=9000 make sim   any range
//	SIM_SEED=9017 SIM_TRACE=1 make sim     one seed, with its trace
//	SIM_SEED=9017 SIM_DROP=3,8 make sim    one seed without some of its decisions and faults
//
// A seed that fails is shrunk, and its command is printed; with SIM_KEEP=1 its line is
// added to testdata/seeds.txt, which every run of the tests replays.
package sim
