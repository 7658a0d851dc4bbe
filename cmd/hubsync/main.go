// Command hubsync is the one command for developers and operators.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	_ "time/tzdata" // the accounts' zones, where the machine has none

	"github.com/spf13/cobra"
)

// Exit codes; 0 is success. docs/cli.md lists them.
const (
	exitFailed    = 1 // it did not work
	exitUsage     = 2 // a mistake in the command line
	exitAttention = 3 // it worked, and found a difference or something to look at
)

// errSilent ends the command as failed; what there was to say has been said.
var errSilent = errors.New("failed")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, newRoot(os.Getenv), os.Stderr))
}

// run executes a command and says on stderr what went wrong; it returns the exit code.
func run(ctx context.Context, root *cobra.Command, stderr io.Writer) int {
	err := root.ExecuteContext(ctx)
	say := func(format string, args ...any) {
		_, _ = fmt.Fprintf(stderr, "hubsync: "+format+"\n", args...) // a terminal that is gone needs no text
	}
	var usage *usageError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errSilent):
		return exitFailed
	case errors.Is(err, errAttention):
		return exitAttention
	case errors.As(err, &usage), strings.HasPrefix(err.Error(), "unknown command"):
		say("%v\nRun 'hubsync --help' for what there is.", err)
		return exitUsage
	case ctx.Err() != nil:
		say("stopped")
		return exitFailed
	default:
		say("%v", err)
		return exitFailed
	}
}

// usageError is a mistake in the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// newRoot makes the command; getenv is where the operators' verbs find their configuration.
func newRoot(getenv func(string) string) *cobra.Command {
	root := &cobra.Command{
		Use:   "hubsync",
		Short: "Subscription decisions, applied to HubSpot reliably, in order and within its limits",
		Long: `hubsync makes subscription decisions arrive in HubSpot: an application says that a
person is (un)subscribed, one PostgreSQL transaction stores that, and HubSpot ends with
the latest valid decision, whatever fails in between.

Start with 'hubsync demo': it runs all of it on this machine and shows the result.`,
		SilenceUsage: true, SilenceErrors: true,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	root.AddCommand(newDemo(), newDev(), newSoak(), newMigrate(), newImport(getenv), newEmulate())
	root.AddCommand(operators(getenv)...)
	root.AddCommand(newReference())
	return root
}
