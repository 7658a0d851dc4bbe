package migrations

import (
	"os"
	"regexp"
	"slices"
	"testing"
	"testing/fstest"
)

func TestHashesChainAndTellEveryChange(t *testing.T) {
	t.Parallel()
	one := fstest.MapFS{"00001_a.sql": {Data: []byte("SELECT 1")}, "embed.go": {Data: []byte("x")}}
	two := fstest.MapFS{"00001_a.sql": one["00001_a.sql"], "00002_b.sql": {Data: []byte("SELECT 2")}}
	moved := fstest.MapFS{"00001_b.sql": one["00001_a.sql"]}
	edited := fstest.MapFS{"00001_a.sql": {Data: []byte("SELECT 3")}, "00002_b.sql": two["00002_b.sql"]}
	of := func(files fstest.MapFS) []string {
		h, err := hashes(files)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	a, b, c, d := of(one), of(two), of(moved), of(edited)
	if len(a) != 1 || len(b) != 2 || b[0] != a[0] || b[1] == a[0] || c[0] == a[0] || d[0] == a[0] || d[1] == b[1] {
		t.Errorf("%v %v %v %v", a, b, c, d)
	}
	if !slices.Equal(a, of(one)) {
		t.Error("not stable")
	}
}

// TestTemplateNamesTheNewestSchema: a deployment migrates when this value changes.
func TestTemplateNamesTheNewestSchema(t *testing.T) {
	t.Parallel()
	all, err := Hashes()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../template.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^      Version: "([0-9a-f]*)"$`).FindSubmatch(text)
	if want := all[len(all)-1]; found == nil || string(found[1]) != want {
		t.Errorf("template.yaml names another schema than migrations/ makes (%s): run make schema-hash", want)
	}
}
