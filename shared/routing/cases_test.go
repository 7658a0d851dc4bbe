package routing

import (
	"testing"

	"hubsync/shared/casetest"
)

func TestMain(m *testing.M) { casetest.Main(m, "routing") }
