package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func yesFlag(cmd *cobra.Command, confirmed *bool) {
	cmd.Flags().BoolVarP(confirmed, "yes", "y", false, "do not ask")
}

// confirm asks before something that others notice. A script has to say --yes: where
// nobody can answer, nothing is done.
func confirm(cmd *cobra.Command, confirmed bool, question string) error {
	if confirmed {
		return nil
	}
	in := cmd.InOrStdin()
	if f, ok := in.(*os.File); !ok || !isTerminal(f) {
		return &usageError{fmt.Errorf("%s needs --yes: there is no terminal to ask on", cmd.CommandPath())}
	}
	cmd.PrintErrf("%s [y/N] ", question)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && answer == "" {
		return errors.New("nothing was done: no answer")
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errors.New("nothing was done")
}

// attention turns "it worked and found something" into its exit code.
func attention(err error, fine bool) error {
	if err == nil && !fine {
		return errAttention
	}
	return err
}

// when shows a time in UTC, to the second.
func when(t *time.Time) string {
	if t == nil {
		return "–"
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}
