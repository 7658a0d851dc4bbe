package lambdatest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Build builds functions of this module, for this machine's architecture and else as
// `make build` does, into a folder. It needs Go and the module's sources: the working
// directory is anywhere in the module.
func Build(ctx context.Context, dir string, names ...string) error {
	args := []string{"build", "-tags", "lambda.norpc", "-trimpath", "-ldflags", "-s -w", "-o", dir + string(filepath.Separator)}
	for _, name := range names {
		args = append(args, "hubsync/functions/"+name)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the functions %v: %w: %s", names, err, said)
	}
	return nil
}

// Bootstrap is where Build puts a function.
func Bootstrap(dir, name string) string { return filepath.Join(dir, name) }
