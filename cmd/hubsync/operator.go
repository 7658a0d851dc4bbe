package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"

	json "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"hubsync/shared/ops"
)

// operator is where a verb runs and how its answer is shown.
type operator struct {
	stack string // empty: here, with the environment's configuration
	json  bool
	// getenv is the environment of the verbs that run here.
	getenv func(string) string
}

// errAttention ends a command that worked and found something to look at.
var errAttention = errors.New("attention")

// operators makes the commands that ask or act; each takes --stack and --json.
func operators(getenv func(string) string) []*cobra.Command {
	op := &operator{getenv: getenv}
	commands := []*cobra.Command{
		newStatus(op), newEvents(op), newReplay(op), newPause(op), newResume(op), newBudget(op), newDrift(op), newConflicts(op),
		newRoutes(op), newPortal(op), newEvidence(op), newAudit(op), newKeys(op), newDoctor(op), newConsole(op),
	}
	for _, c := range commands {
		c.PersistentFlags().StringVar(&op.stack, "stack", "", "ask the admin function of this stack instead of the database of DATABASE_URL")
		c.PersistentFlags().BoolVar(&op.json, "json", false, "print the answer as JSON")
	}
	return commands
}

// group is a command that only has others below it.
func group(use, short string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: noneBelow,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(below...)
	return cmd
}

// noneBelow refuses the name of a command that does not exist.
func noneBelow(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return &usageError{fmt.Errorf("%s has no command %q", cmd.CommandPath(), args[0])}
	}
	return nil
}

// exactly takes n arguments; what they are is said where they are missing.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return &usageError{fmt.Errorf("%s takes %s", cmd.CommandPath(), what)}
		}
		return nil
	}
}

// atMostOne takes one argument or none.
func atMostOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return &usageError{fmt.Errorf("%s takes at most %s", cmd.CommandPath(), what)}
		}
		return nil
	}
}

func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// ask runs a verb here or in the stack, and returns its answer.
func ask[R any](ctx context.Context, op *operator, verb string, args any) (R, error) {
	var result R
	text, err := json.Marshal(args)
	if err != nil {
		return result, fmt.Errorf("%s: write the arguments: %w", verb, err)
	}
	request := ops.Request{Verb: verb, Args: text, By: caller()}
	var response ops.Response
	if op.stack != "" {
		if response, err = invoke(ctx, op.stack, request); err != nil {
			return result, err
		}
	} else {
		response = op.here(ctx).Serve(ctx, request)
	}
	if response.Error != "" {
		if response.Usage {
			return result, &usageError{errors.New(response.Error)}
		}
		return result, errors.New(response.Error)
	}
	if err := json.Unmarshal(response.Result, &result); err != nil {
		return result, fmt.Errorf("%s: the answer cannot be read: is the stack of another version? %w", verb, err)
	}
	return result, nil
}

// here makes the verbs from this process's environment.
func (op *operator) here(ctx context.Context) *ops.Ops {
	return ops.Open(ctx, ops.Environment{Getenv: op.getenv, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
}

// caller names who asks, for the audit.
func caller() string {
	u, err := user.Current()
	if err != nil {
		return "unknown"
	}
	return u.Username
}

// show prints an answer as JSON, or by text.
func (op *operator) show(w io.Writer, answer any, text func(*page)) error {
	if op.json {
		if err := json.MarshalWrite(w, answer, jsontext.WithIndent("  ")); err != nil {
			return fmt.Errorf("print the answer: %w", err)
		}
		_, err := fmt.Fprintln(w)
		return err
	}
	p := &page{}
	text(p)
	_, err := io.WriteString(w, p.String())
	return err
}
