// Package casetest counts the rows of the tests' tables, so that `make boundaries` can
// say how many cases were tried.
package casetest

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"
)

var cases atomic.Int64

// Add counts one case.
func Add() { cases.Add(1) }

// Main runs a package's tests and prints the count.
func Main(m *testing.M, name string) {
	code := m.Run()
	fmt.Printf("%d cases in the tables of %s\n", cases.Load(), name)
	os.Exit(code)
}
