package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	json "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"hubsync/shared/ops"
)

func newEvidence(op *operator) *cobra.Command {
	var format, out string
	cmd := &cobra.Command{
		Use:   "evidence CONTACT_KEY",
		Short: "What is known of a contact's decisions: accepted, published, confirmed by HubSpot, seen there",
		Long: `evidence prints the ordered ledger of one contact. With --out it writes a file and, beside it,
FILE.sha256, which 'sha256sum -c' reads. CSV cells cannot be taken for formulas. No address and no
consent text stands in it: consents are shown by their hash.`,
		Args: exactly(1, "one contact's key"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if op.json {
				format = "json"
			}
			if !slices.Contains(evidenceFormats, format) {
				return &usageError{fmt.Errorf("--format takes text, csv or json, not %q", format)}
			}
			l, err := ask[ops.Ledger](cmd.Context(), op, "evidence", ops.EvidenceArgs{ContactKey: args[0]})
			if err != nil {
				return err
			}
			content, err := ledgerAs(l, format)
			if err != nil {
				return err
			}
			if out == "" {
				_, err := cmd.OutOrStdout().Write(content)
				return err
			}
			return writeSealed(cmd, out, content)
		},
	}
	cmd.Flags().StringVar(&format, "format", "text", "text, csv or json")
	cmd.Flags().StringVar(&out, "out", "", "write this file, and its hash beside it; an existing one is not overwritten")
	return cmd
}

var evidenceFormats = []string{"text", "csv", "json"}

// ledgerAs writes a ledger in one of the evidenceFormats.
func ledgerAs(l ops.Ledger, format string) ([]byte, error) {
	var b bytes.Buffer
	switch format {
	case "json":
		if err := json.MarshalWrite(&b, l, jsontext.WithIndent("  ")); err != nil {
			return nil, fmt.Errorf("write the evidence: %w", err)
		}
		b.WriteByte('\n')
	case "csv":
		if err := l.WriteCSV(&b); err != nil {
			return nil, err
		}
	default:
		p := &page{}
		rows := make([][]string, len(l.Entries))
		for i, e := range l.Entries {
			rows[i] = []string{when(&e.At), e.Step, e.Brand + "/" + e.Product, shortState(e.State), strconv.FormatInt(e.Sequence, 10),
				cmp.Or(e.Operation, e.Source) + " " + e.Outcome, cmp.Or(e.CorrelationID, e.MessageID, e.Detail)}
		}
		p.table([]string{"=AT", "STEP", "SUBSCRIPTION", "STATE", "SEQ", "WHAT", "REFERENCE"}, rows)
		p.line("sha256 of the entries: %s", l.SHA256)
		b.WriteString(p.String())
	}
	return b.Bytes(), nil
}

// writeSealed writes a file and its hash, readable by this user only.
func writeSealed(cmd *cobra.Command, name string, content []byte) error {
	sum := sha256.Sum256(content)
	line := hex.EncodeToString(sum[:]) + "  " + filepath.Base(name) + "\n"
	for _, file := range []struct {
		name    string
		content []byte
	}{{name, content}, {name + ".sha256", []byte(line)}} {
		f, err := os.OpenFile(file.name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%s exists already: name another file, or move it away", file.name)
		}
		if err != nil {
			return fmt.Errorf("write the evidence: %w", err)
		}
		_, err = f.Write(file.content)
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("write the evidence: %w", err)
		}
	}
	_, err := fmt.Fprint(cmd.OutOrStdout(), line)
	return err
}

func newAudit(op *operator) *cobra.Command {
	var in ops.AuditArgs
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Who changed what: the verbs that operators used, the newest first",
		Args:  exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := ask[ops.AuditLog](cmd.Context(), op, "audit", in)
			if err != nil {
				return err
			}
			return op.show(cmd.OutOrStdout(), a, func(p *page) {
				rows := make([][]string, len(a.Actions))
				for i, x := range a.Actions {
					outcome := "done"
					if x.FinishedAt == nil {
						outcome = "unfinished"
					}
					if x.Problem != "" {
						outcome = x.Problem
					}
					rows[i] = []string{when(&x.StartedAt), x.Actor, x.Verb, x.Args, outcome}
				}
				p.table([]string{"=AT", "WHO", "VERB", "ARGUMENTS", "OUTCOME"}, rows)
			})
		},
	}
	cmd.Flags().IntVar(&in.Limit, "limit", 50, "how many, at most 1000")
	return cmd
}
