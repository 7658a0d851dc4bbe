package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newReference prints the reference that docs/cli.md holds; a test holds the two equal.
func newReference() *cobra.Command {
	return &cobra.Command{
		Use: "reference", Short: "Print docs/cli.md", Hidden: true, Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(cmd.OutOrStdout(), reference(cmd.Root()))
			return err
		},
	}
}

const referenceHead = `# hubsync, the command

Printed by ` + "`hubsync reference`" + `; a test holds this page and the command equal.

Commands that ask or act as an operator work on the database of ` + "`DATABASE_URL`" + ` with the variables that the functions
read (README, *Configuration of the functions*), or with ` + "`--stack NAME`" + ` through the function ` + "`NAME-admin`" + `, by
` + "`lambda:InvokeFunction`" + ` with the AWS credentials and the region of the environment. What they change is written into the
audit (` + "`hubsync audit`" + `) before it is done. No command prints an e-mail address, a token or a consent text.

| exit code | meaning |
|---|---|
| 0 | it worked |
| 1 | it failed; standard error says why and what to do |
| 2 | a mistake in the command line |
| 3 | it worked, and found a difference or something that a person should look at |

Commands that others notice ask first. ` + "`--yes`" + ` answers; without a terminal to ask on, and without it, nothing is done.
` + "`--json`" + ` prints what the tables are made of. ` + "`hubsync completion SHELL`" + ` prints a completion script.
`

// reference describes every command in Markdown.
func reference(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString(referenceHead)
	describe(&b, root)
	return b.String()
}

func describe(b *strings.Builder, cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		if c.HasSubCommands() {
			describe(b, c)
			continue
		}
		fmt.Fprintf(b, "\n## %s\n\n%s.\n", c.CommandPath(), c.Short)
		if c.Long != "" {
			fmt.Fprintf(b, "\n%s\n", c.Long)
		}
		fmt.Fprintf(b, "\n```\n%s\n", c.UseLine())
		c.LocalFlags().VisitAll(func(f *pflag.Flag) { flagLine(b, f) })
		c.InheritedFlags().VisitAll(func(f *pflag.Flag) { flagLine(b, f) })
		b.WriteString("```\n")
	}
}

func flagLine(b *strings.Builder, f *pflag.Flag) {
	if f.Name == "help" {
		return
	}
	name := "--" + f.Name
	if kind := f.Value.Type(); kind != "bool" {
		name += " " + strings.ToUpper(kind)
	}
	fmt.Fprintf(b, "  %-22s %s", name, f.Usage)
	if d := f.DefValue; d != "" && d != "0" && d != "false" && d != "0s" {
		fmt.Fprintf(b, " (default %s)", d)
	}
	b.WriteByte('\n')
}
