package matrix

import (
	"bytes"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/failure-matrix.md anew")

const (
	root  = "../.."
	page  = root + "/docs/failure-matrix.md"
	begin = "<!-- tables -->\n"
	end   = "<!-- end of tables -->"
)

func read(t *testing.T) []Cell {
	t.Helper()
	content, err := os.ReadFile(root + "/docs/failure-matrix.csv")
	if err != nil {
		t.Fatal(err)
	}
	cells, err := Read(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	return cells
}

func TestEveryCellNamesTestsThatExist(t *testing.T) {
	t.Parallel()
	cells := read(t)
	if len(cells) != 154 || len(Live(cells)) != 121 {
		t.Errorf("%d cells, %d of them live: 14 steps × 11 failures are 154, and 121 can occur", len(cells), len(Live(cells)))
	}
	problems, err := Missing(root, cells)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Error(p)
	}
	if n := len(Named(cells)); n < 80 {
		t.Errorf("only %d tests are named: are they read?", n)
	}
}

// The tables of the page are written from the cells: `go test ./shared/matrix -update`.
func TestThePageShowsTheCells(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(content), begin)
	_, tail, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no place for the tables", page)
	}
	want := head + begin + Table(read(t)) + "\n" + end + tail
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(content) {
		t.Errorf("%s is not what the cells say: run go test ./shared/matrix -update", page)
	}
}

func TestReadRefuses(t *testing.T) {
	t.Parallel()
	const first = "cell,step,failure,must_happen,mechanism,bound,proof\n"
	for name, content := range map[string]string{
		"nothing":             "",
		"another first line":  "cell,step\n1a,x\n",
		"a column too few":    first + "1a,1 x,crash,y,z,0\n",
		"a cell twice":        first + "1a,1 x,crash,y,z,0,a.TestX\n1a,1 x,crash,y,z,0,a.TestX\n",
		"a test of nowhere":   first + "1a,1 x,crash,y,z,0,TestX\n",
		"something else":      first + "1a,1 x,crash,y,z,0,shared/worker\n",
		"commas between them": first + "1a,1 x,crash,y,z,0,\"a.TestX, .TestY\"\n",
	} {
		if _, err := Read(strings.NewReader(content)); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func TestMissingTestsAreNamed(t *testing.T) {
	t.Parallel()
	here := func(name string) Cell {
		return Cell{ID: "1a", Step: "1 x", Failure: "crash", Proof: []Test{{"shared/matrix", name}}}
	}
	for name, tc := range map[string]struct {
		cell Cell
		want string
	}{
		"there":                       {here("TestMissingTestsAreNamed"), ""},
		"renamed":                     {here("TestMissingTestsWereNamed"), "cell 1a names shared/matrix.TestMissingTestsWereNamed, which does not exist"},
		"a helper":                    {here("Testing"), "does not exist"},
		"a subtest there":             {here("TestMissingTestsAreNamed/a_subtest_there"), ""},
		"a subtest renamed":           {here("TestMissingTestsAreNamed/" + strings.ToLower("GONE")), "does not exist"},
		"behind a build tag":          {Cell{ID: "1a", Proof: []Test{{"shared/simtest", "TestAWeek"}}}, "does not exist"},
		"a live cell without a proof": {Cell{ID: "1a", Step: "1 x", Failure: "crash"}, "cell 1a (1 x: crash) names 0 tests"},
		"a proof of the impossible":   {Cell{ID: "1a", Impossible: true, Proof: here("TestReadRefuses").Proof}, "names 1 tests"},
	} {
		got, err := Missing(root, []Cell{tc.cell})
		if err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(got, "; "); (tc.want == "") != (text == "") || !strings.Contains(text, tc.want) {
			t.Errorf("%s: %q, want %q", name, text, tc.want)
		}
	}
	if _, err := Missing(root, []Cell{{ID: "1a", Proof: []Test{{"shared/nothing", "TestX"}}}}); err == nil {
		t.Error("a package that is not there is no error")
	}
}

// What go test says of a run, and what becomes of the cell.
func TestJudge(t *testing.T) {
	t.Parallel()
	cells := []Cell{
		{ID: "1a", Step: "1 x", Failure: "crash", Proof: []Test{{"shared/a", "TestA"}, {"shared/a", "TestB/a_part"}}},
		{ID: "1b", Step: "1 x", Failure: "twice", Impossible: true},
	}
	line := func(action, test string) string {
		return `{"Action":"` + action + `","Package":"hubsync/shared/a","Test":"` + test + `","Elapsed":0.5}` + "\n"
	}
	good := line("run", "TestA") + line("pass", "TestA") + line("run", "TestB/a_part") + line("pass", "TestB/a_part") + line("pass", "TestB")
	for name, tc := range map[string]struct {
		output string
		want   []string
	}{
		"all passed":        {good, nil},
		"one failed":        {strings.Replace(good, line("pass", "TestA"), line("fail", "TestA"), 1), []string{"cell 1a (1 x: crash): shared/a.TestA failed"}},
		"one was skipped":   {strings.Replace(good, line("pass", "TestA"), line("skip", "TestA"), 1), []string{"cell 1a (1 x: crash): shared/a.TestA was skipped"}},
		"a part is renamed": {strings.ReplaceAll(good, "a_part", "another"), []string{"cell 1a (1 x: crash): shared/a.TestB/a_part did not run"}},
		"it never ended":    {strings.Replace(good, line("pass", "TestA"), "", 1), []string{"cell 1a (1 x: crash): shared/a.TestA did not run"}},
		"another package's": {strings.ReplaceAll(good, "shared/a", "shared/b"), []string{"cell 1a (1 x: crash): shared/a.TestA did not run", "cell 1a (1 x: crash): shared/a.TestB/a_part did not run"}},
		"does not compile": {`{"ImportPath":"hubsync/shared/a","Action":"build-fail"}` + "\n" + `{"Action":"fail","Package":"hubsync/shared/a","FailedBuild":"hubsync/shared/a"}`,
			[]string{"cell 1a (1 x: crash): shared/a.TestA did not run", "cell 1a (1 x: crash): shared/a.TestB/a_part did not run"}},
	} {
		results, err := ReadResults(strings.NewReader(tc.output))
		if err != nil {
			t.Fatal(err)
		}
		proven, problems := Judge(cells, results)
		if !slices.Equal(problems, tc.want) || (proven == 1) != (tc.want == nil) {
			t.Errorf("%s: %d proven, %q", name, proven, problems)
		}
	}
	if _, problems := Judge([]Cell{{ID: "1c", Step: "1 x", Failure: "late"}}, Results{}); len(problems) != 1 {
		t.Errorf("a cell without a proof: %q", problems)
	}
	if _, err := ReadResults(strings.NewReader("FAIL")); err == nil {
		t.Error("output that is no JSON is no error")
	}
}

func TestArgsRunTheNamedTestsOnly(t *testing.T) {
	t.Parallel()
	args := strings.Join(Args([]Cell{
		{Proof: []Test{{"shared/b", "TestB/x"}, {"shared/a", "TestA"}}}, {Proof: []Test{{"shared/a", "TestA"}, {"shared/b", "TestB/y"}}},
	}), " ")
	if want := "test -json -count=1 -vet=off -timeout=5m -run ^(TestA|TestB)$ ./shared/a ./shared/b"; args != want {
		t.Errorf("go %s, want go %s", args, want)
	}
}
