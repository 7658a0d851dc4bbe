package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"hubsync/shared/ops"
)

func newPortal(op *operator) *cobra.Command {
	return group("portal", "Look at HubSpot accounts", newPortalCheck(op))
}

func newPortalCheck(op *operator) *cobra.Command {
	var in ops.PortalArgs
	cmd := &cobra.Command{
		Use:   "check [PORTAL]",
		Short: "Check token, scopes, properties, plan, and who of the subscribed can be mailed",
		Long: `check looks at one account, or at every one: the token and its scopes, what the active mapping names,
the plan (batch preferences), whether the account returns our marker, and a sample of subscribed
people, because HubSpot shows SUBSCRIBED for people whom it does not mail. Exit code 3: something
must be mended.`,
		Args: atMostOne("one portal"),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Portal = first(args)
			checks, err := ask[ops.PortalChecks](cmd.Context(), op, "portal.check", in)
			if err != nil {
				return err
			}
			err = op.show(cmd.OutOrStdout(), checks, func(p *page) {
				for _, r := range checks.Portals {
					showPortal(p, r)
				}
			})
			return attention(err, checks.OK)
		},
	}
	cmd.Flags().BoolVar(&in.Create, "create", false, "make the property external_contact_id where it is missing")
	cmd.Flags().IntVar(&in.Sample, "sample", 100, "subscribed people to look at, at most 100")
	return cmd
}

func showPortal(p *page, r ops.PortalReport) {
	sign := "✓"
	if len(r.Findings) > 0 {
		sign = " "
	}
	p.line("%s portal %s: account %d, %s, time zone %s", sign, r.ID, r.HubID, r.Type, r.TimeZone)
	if r.Created {
		p.line("  made the property external_contact_id")
	}
	p.line("  batch preferences: %s; returns our marker: %s", r.Batch, r.Marker)
	if len(r.Scopes) > 0 {
		p.wrapped("    ", "  scopes: "+strings.Join(r.Scopes, ", "))
	}
	if m := r.Mailable; m.Sampled > 0 {
		p.line("  of %d subscribed people: %s", m.Sampled, fmt.Sprintf("%d without contact, %d non-marketing, %d quarantined, %d unconfirmed",
			m.NoContact, m.NonMarketing, m.Quarantined, m.Unconfirmed))
	}
	p.findings(r.Findings)
}
