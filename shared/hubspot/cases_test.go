package hubspot

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"
)

// cases counts the rows of this package's tables; `make boundaries` prints the sum.
var cases atomic.Int64

func TestMain(m *testing.M) {
	code := m.Run()
	fmt.Printf("%d cases in the tables of hubspot\n", cases.Load())
	os.Exit(code)
}
