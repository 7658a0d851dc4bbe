package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"hubsync/shared/ops"
)

func newRoutes(op *operator) *cobra.Command {
	return group("routes", "Check, compare and activate the mapping of brands and products to HubSpot",
		newRoutesValidate(op), newRoutesPlan(op), newRoutesApply(op), newRoutesHistory(op))
}

const oneFile = "one file (- reads standard input)"

func newRoutesValidate(op *operator) *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE",
		Short: "Compare a routes file with what HubSpot has, and name every mismatch",
		Long: `validate reads subscription types, properties, lists and brands from HubSpot and names every
mismatch: a subscription type that is unknown, inactive, of another brand or claimed twice; a
property that is missing, wrongly typed, read-only or not unique; a DYNAMIC list; an unknown brand.
It changes nothing. Exit code 3: something must be mended.`,
		Args: exactly(1, oneFile),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := readFile(cmd, args[0])
			if err != nil {
				return err
			}
			v, err := ask[ops.Validation](cmd.Context(), op, "routes.validate", file)
			if err != nil {
				return err
			}
			err = op.show(cmd.OutOrStdout(), v, func(p *page) {
				p.findings(v.Findings)
				if v.OK {
					p.line("✓ the file fits what HubSpot has")
				}
			})
			return attention(err, v.OK)
		},
	}
}

func newRoutesPlan(op *operator) *cobra.Command {
	return &cobra.Command{
		Use:   "plan FILE",
		Short: "Show what a routes file would change",
		Long: `plan compares a routes file with what is active, without a call to HubSpot. Exit code 3: there is
a difference.`,
		Args: exactly(1, oneFile),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := readFile(cmd, args[0])
			if err != nil {
				return err
			}
			plan, err := ask[ops.RoutesPlan](cmd.Context(), op, "routes.plan", file)
			if err != nil {
				return err
			}
			err = op.show(cmd.OutOrStdout(), plan, func(p *page) { showPlan(p, plan) })
			return attention(err, len(plan.Changes) == 0)
		},
	}
}

func showPlan(p *page, plan ops.RoutesPlan) {
	if len(plan.Changes) == 0 {
		p.line("no difference: the file is what is active")
	} else {
		rows := make([][]string, len(plan.Changes))
		for i, c := range plan.Changes {
			where := "portal " + c.Portal
			if c.Brand != "" {
				where = strings.TrimSuffix(c.Brand+"/"+c.Product, "/")
			}
			rows[i] = []string{where, c.What, c.Before, c.After}
		}
		p.table([]string{"WHERE", "CHANGE", "BEFORE", "AFTER"}, rows)
	}
	for brand, version := range plan.Versions {
		p.line("brand %s would get version %d", brand, version)
	}
	if len(plan.Kept) > 0 {
		p.line("not in the file, and kept: %s", strings.Join(plan.Kept, ", "))
	}
	p.findings(plan.Findings)
}

func newRoutesApply(op *operator) *cobra.Command {
	var confirmed bool
	cmd := &cobra.Command{
		Use:   "apply FILE",
		Short: "Make a routes file active, in one transaction",
		Long: `apply checks a routes file as validate does, refuses an invalid one, and makes it active: each brand
that changed gets its next version. Events on their way stay on their snapshot. Exit code 3: refused.`,
		Args: exactly(1, oneFile),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := readFile(cmd, args[0])
			if err != nil {
				return err
			}
			if err := confirm(cmd, confirmed, "Make "+args[0]+" active?"); err != nil {
				return err
			}
			applied, err := ask[ops.RoutesApplied](cmd.Context(), op, "routes.apply", file)
			if err != nil {
				return err
			}
			err = op.show(cmd.OutOrStdout(), applied, func(p *page) {
				p.findings(applied.Findings)
				switch {
				case !applied.OK:
					p.line("✗ nothing was changed: mend what stands above")
				case len(applied.Versions) == 0:
					p.line("✓ no brand changed")
				}
				for brand, version := range applied.Versions {
					p.line("✓ brand %s: version %d is active", brand, version)
				}
			})
			return attention(err, applied.OK)
		},
	}
	yesFlag(cmd, &confirmed)
	return cmd
}

func newRoutesHistory(op *operator) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "history [BRAND]",
		Short: "List the versions of brands' mappings, the newest first",
		Args:  atMostOne("one brand"),
		RunE: func(cmd *cobra.Command, args []string) error {
			h, err := ask[ops.History](cmd.Context(), op, "routes.history", ops.HistoryArgs{Brand: first(args), Limit: limit})
			if err != nil {
				return err
			}
			return op.show(cmd.OutOrStdout(), h, func(p *page) {
				rows := make([][]string, len(h.Versions))
				for i, v := range h.Versions {
					rows[i] = []string{
						v.BrandID, strconv.Itoa(v.Version), v.Status, v.PortalID, strconv.Itoa(v.Products),
						strconv.Itoa(v.InFlight), when(v.ActivatedAt), cut(v.ContentHash, 9),
					}
				}
				p.table([]string{"BRAND", "VERSION", "STATUS", "PORTAL", "PRODUCTS", "IN FLIGHT", "ACTIVE SINCE", "HASH"}, rows)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "how many, at most 1000")
	return cmd
}

// mostFile is larger than any routes file.
const mostFile = 4 << 20

func readFile(cmd *cobra.Command, name string) (ops.RoutesFile, error) {
	if name == "-" {
		content, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), mostFile))
		if err != nil {
			return ops.RoutesFile{}, fmt.Errorf("read standard input: %w", err)
		}
		return ops.RoutesFile{Content: string(content)}, nil
	}
	content, err := os.ReadFile(name)
	if err != nil {
		return ops.RoutesFile{}, fmt.Errorf("read the routes file: %w", err)
	}
	return ops.RoutesFile{Content: string(content)}, nil
}
