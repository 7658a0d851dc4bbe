//go:build race

package model

// The race detector makes an exploration ten times slower and finds nothing in one
// goroutine: `make model` explores the larger bounds without it.
const underRace = true
