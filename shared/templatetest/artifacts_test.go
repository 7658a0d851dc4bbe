package templatetest

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// maxBootstrap is the most bytes that a bootstrap may have: each is loaded at a cold start.
const maxBootstrap = 16_000_000

// TestBuiltBootstrapsRunOnTheDeclaredArchitecture calls the Makefile's targets as sam build
// does, by logical id.
func TestBuiltBootstrapsRunOnTheDeclaredArchitecture(t *testing.T) {
	t.Parallel()
	e := expand(t, loadTemplate(t))
	for _, stage := range stages {
		dir := t.TempDir()
		cmd := exec.Command("make", "-C", root, "build-"+logicalID(stage), "ARTIFACTS_DIR="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", stage, err, out)
		}
		path := filepath.Join(dir, "bootstrap")
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o111 == 0 || info.Size() > maxBootstrap {
			t.Errorf("%s: mode %s, %d bytes of at most %d", stage, info.Mode(), info.Size(), maxBootstrap)
		}
		t.Logf("%s: %.1f MB", stage, float64(info.Size())/1e6)
		file, err := elf.Open(path)
		if err != nil {
			t.Fatalf("%s: %v", stage, err)
		}
		want := map[string]elf.Machine{"[arm64]": elf.EM_AARCH64, "[x86_64]": elf.EM_X86_64}[canonical(e.properties(logicalID(stage))["Architectures"])]
		if file.Machine != want || file.Type != elf.ET_EXEC || file.Class != elf.ELFCLASS64 {
			t.Errorf("%s: %s %s %s, want an executable for %s", stage, file.Class, file.Machine, file.Type, want)
		}
		if libraries, err := file.ImportedLibraries(); err != nil || len(libraries) > 0 {
			t.Errorf("%s needs %v, %v: the runtime has none of them", stage, libraries, err)
		}
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}
}
