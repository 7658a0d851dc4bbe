package ops

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"hubsync/shared/hubspot"
	"hubsync/shared/postgres"
	"hubsync/shared/routing"
)

// PortalArgs says which portals to check.
type PortalArgs struct {
	Portal string `json:"portal,omitzero"` // empty: every one
	Create bool   `json:"create,omitzero"` // make the property that holds our contact key where it is missing
	Sample int    `json:"sample,omitzero"` // people to look at, 1 to 100; default 100
}

// PortalReport is what a check found out about one account.
type PortalReport struct {
	ID       string   `json:"id"`
	HubID    int64    `json:"hubId"`
	Type     string   `json:"accountType"`
	TimeZone string   `json:"timeZone"`
	Scopes   []string `json:"scopes"` // empty: the token does not say
	Created  bool     `json:"created"`
	// Batch: preferences can be read and written many at a time (Enterprise).
	Batch string `json:"batchPreferences"` // yes, no, unknown
	// Marker: the account returns what we write into legalBasisExplanation, so that our
	// own opt-outs are known by it, and not by their time alone.
	Marker   string    `json:"returnsMarker"` // yes, no, unknown
	Mailable Mailable  `json:"mailable"`
	Findings []Finding `json:"findings"`
}

// Mailable counts, in a sample of people who are subscribed, who can be mailed all the
// same: HubSpot shows SUBSCRIBED for people whom it does not mail.
type Mailable struct {
	Sampled      int `json:"sampled"`
	NoContact    int `json:"noContact"`
	NonMarketing int `json:"nonMarketing"`
	Quarantined  int `json:"quarantined"`
	Unconfirmed  int `json:"unconfirmed"` // double opt-in that was not answered
}

// PortalChecks is the answer of PortalCheck. OK: nothing that must be mended.
type PortalChecks struct {
	OK      bool           `json:"ok"`
	Portals []PortalReport `json:"portals"`
}

// What a portal may be found to do.
const (
	yes     = "yes"
	no      = "no"
	unknown = "unknown"
)

// neededScopes are those that every portal needs; more, where a mapping names lists.
var neededScopes = []string{
	"crm.objects.contacts.read", "crm.objects.contacts.write", "crm.schemas.contacts.read",
	"communication_preferences.read", "communication_preferences.read_write",
}

var listScopes = []string{"crm.lists.read", "crm.lists.write"}

// PortalCheck looks at the token, scopes, properties, plan and people of accounts: about
// eight calls each.
func (o *Ops) PortalCheck(ctx context.Context, in PortalArgs) (PortalChecks, error) {
	db, err := o.db()
	if err != nil {
		return PortalChecks{}, err
	}
	if in.Sample < 0 || in.Sample > hubspot.MaxInputs {
		return PortalChecks{}, usage("sample takes 1 to %d people, not %d", hubspot.MaxInputs, in.Sample)
	}
	portals, err := db.Portals(ctx)
	if err != nil {
		return PortalChecks{}, err
	}
	active, err := db.ActiveRoutes(ctx)
	if err != nil {
		return PortalChecks{}, err
	}
	out := PortalChecks{OK: true}
	for _, p := range portals {
		if in.Portal != "" && in.Portal != p.ID {
			continue
		}
		report := o.checkPortal(ctx, p, active.File, in)
		out.OK = out.OK && !hasErrors(report.Findings)
		out.Portals = append(out.Portals, report)
	}
	if in.Portal != "" && len(out.Portals) == 0 {
		return PortalChecks{}, usage("portal %q is not in the active routes: 'hubsync routes history' lists what is", in.Portal)
	}
	return out, nil
}

// checkPortal reports a failure as a finding: the next portal is checked all the same.
func (o *Ops) checkPortal(ctx context.Context, p postgres.Portal, file *routing.File, in PortalArgs) PortalReport {
	r := PortalReport{ID: p.ID, Batch: unknown, Marker: unknown}
	f := &findings{}
	if err := o.inspect(ctx, p, file, in, &r, f); err != nil {
		f.wrong("portal "+p.ID, fixOf(err, p.ID), "%v", err)
	}
	r.Findings = f.list
	return r
}

func (o *Ops) inspect(ctx context.Context, p postgres.Portal, file *routing.File, in PortalArgs, r *PortalReport, f *findings) error {
	client, err := o.cfg.Client(p.ID, p.APIVersion)
	if err != nil {
		return err
	}
	lists := listsOf(file, p.ID)
	a, err := o.readAccount(ctx, p, lists, f)
	if err != nil {
		return err
	}
	r.HubID, r.Type, r.TimeZone = a.info.PortalID, a.info.Type, a.info.TimeZone
	a.compareAccount(routing.Portal{ID: p.ID, HubID: p.HubID, TimeZone: p.TimeZone}, f)
	if err := o.checkScopes(ctx, p, client, len(lists) > 0, r, f); err != nil {
		return err
	}
	if err := o.createKey(ctx, p, client, a, in.Create, r); err != nil {
		return err
	}
	a.compareKey(p.ID, f)
	for _, b := range file.Brands {
		if b.Portal == p.ID {
			a.compare(b, f)
		}
	}
	return o.checkPeople(ctx, p, client, a, in, r, f)
}

// checkScopes asks what the token may do; one that is not a private app's does not say.
func (o *Ops) checkScopes(ctx context.Context, p postgres.Portal, client *hubspot.Client, lists bool, r *PortalReport, f *findings) error {
	if err := o.spend(ctx, p); err != nil {
		return err
	}
	token, err := client.TokenInfo(ctx)
	var he *hubspot.Error
	if errors.As(err, &he) && (he.Kind == hubspot.KindInvalid || he.Kind == hubspot.KindNotFound || he.Kind == hubspot.KindForbidden) {
		return nil
	}
	if err != nil {
		return err
	}
	r.Scopes = token.Scopes
	needed := neededScopes
	if lists {
		needed = slices.Concat(neededScopes, listScopes)
	}
	for _, scope := range needed {
		if !slices.Contains(token.Scopes, scope) {
			f.wrong("portal "+p.ID, "add it in the app's settings in HubSpot", "the token lacks the scope %s", scope)
		}
	}
	return nil
}

// createKey makes the property that holds our contact key, where asked and missing.
func (o *Ops) createKey(ctx context.Context, p postgres.Portal, client *hubspot.Client, a *account, create bool, r *PortalReport) error {
	if _, exists := a.properties[hubspot.ContactKeyProperty]; exists || !create || a.properties == nil {
		return nil
	}
	if err := o.spend(ctx, p); err != nil {
		return err
	}
	err := client.CreateContactKeyProperty(ctx)
	var he *hubspot.Error
	if err != nil && (!errors.As(err, &he) || he.Kind != hubspot.KindConflict) {
		return err
	}
	r.Created = err == nil
	if err := o.spend(ctx, p); err != nil {
		return err
	}
	return a.readProperties(ctx, client)
}

// checkPeople looks at people of ours, for what the plan allows, what the account
// returns, and who is mailable.
func (o *Ops) checkPeople(ctx context.Context, p postgres.Portal, client *hubspot.Client, a *account, in PortalArgs, r *PortalReport, f *findings) error {
	sample := in.Sample
	if sample == 0 {
		sample = hubspot.MaxInputs
	}
	if err := o.checkBatch(ctx, p, client, sample, r, f); err != nil {
		return err
	}
	subscribed, err := o.cfg.DB.SampleSubscribed(ctx, p.ID, sample)
	if err != nil || len(subscribed) == 0 {
		return err
	}
	if err := o.spend(ctx, p); err != nil {
		return err
	}
	names := existing(a, marketable, quarantined, confirmation)
	reads, err := client.ReadContacts(ctx, subscribed, "email", names)
	if err != nil {
		return err
	}
	r.Mailable = countMailable(reads)
	warnMailable(p.ID, r.Mailable, f)
	return nil
}

// HubSpot's own properties of whether it mails a contact. They are asked for only where
// the account has them.
const (
	marketable   = "hs_marketable_status"
	quarantined  = "hs_email_quarantined"
	confirmation = "hs_emailconfirmationstatus"
)

func existing(a *account, names ...string) []string {
	return slices.DeleteFunc(names, func(n string) bool { _, ok := a.properties[n]; return !ok })
}

func countMailable(reads map[string]hubspot.ContactRead) Mailable {
	var m Mailable
	for _, read := range reads {
		if read.Err != nil {
			continue
		}
		m.Sampled++
		if !read.Found {
			m.NoContact++
			continue
		}
		if read.Properties[marketable] == "false" {
			m.NonMarketing++
		}
		if read.Properties[quarantined] == "true" {
			m.Quarantined++
		}
		if c := read.Properties[confirmation]; c != "" && c != "Confirmed" {
			m.Unconfirmed++
		}
	}
	return m
}

func warnMailable(portal string, m Mailable, f *findings) {
	for _, w := range []struct {
		n         int
		what, fix string
	}{
		{m.NonMarketing, "are non-marketing contacts, which HubSpot does not mail", "set them as marketing contacts in HubSpot; that is billed"},
		{m.Quarantined, "are quarantined after bounces or complaints, and are not mailed", "ask HubSpot's support to release addresses that are good"},
		{m.Unconfirmed, "have not confirmed their double opt-in, and are not mailed", "let them confirm, or switch double opt-in off for these subscription types"},
	} {
		if w.n > 0 {
			f.warn("portal "+portal, w.fix, "%s of %d subscribed people sampled %s", strconv.Itoa(w.n), m.Sampled, w.what)
		}
	}
}

// checkBatch reads preferences many at a time: an account below Enterprise refuses. In
// the statuses of our own opt-outs it looks for our marker.
func (o *Ops) checkBatch(ctx context.Context, p postgres.Portal, client *hubspot.Client, sample int, r *PortalReport, f *findings) error {
	own, err := o.cfg.DB.SampleOwnOptOuts(ctx, p.ID, sample)
	if err != nil {
		return err
	}
	addresses := make([]string, 0, len(own))
	for _, s := range own {
		if !slices.Contains(addresses, s.EmailKey) {
			addresses = append(addresses, s.EmailKey)
		}
	}
	if len(addresses) == 0 {
		addresses = []string{"nobody@example.com"}
	}
	if err := o.spend(ctx, p); err != nil {
		return err
	}
	reads, err := client.ReadStatuses(ctx, addresses)
	var he *hubspot.Error
	if errors.As(err, &he) && he.Kind == hubspot.KindForbidden {
		r.Batch = no
		if p.Plan != "professional" {
			f.warn("portal "+p.ID, "say plan: professional in the routes file, or give the app the batch scopes", "batch preferences are refused: single calls are used, about 20 times as many")
		}
		return nil
	}
	if err != nil {
		return err
	}
	r.Batch, r.Marker = yes, markerShown(own, reads, o.cfg.Env)
	if r.Marker == unknown {
		return nil
	}
	return o.cfg.DB.SetCapability(ctx, p.ID, "returnsMarker", r.Marker == yes)
}

// fixOf says what to do about a failed call.
func fixOf(err error, portal string) string {
	var he *hubspot.Error
	if errors.As(err, &he) {
		switch he.Kind {
		case hubspot.KindUnauthorized:
			return "put the app's current token into the secret of portal " + portal
		case hubspot.KindForbidden:
			return "give the app the scope, or use the plan that the call needs"
		case hubspot.KindRateLimited, hubspot.KindDailyLimited, hubspot.KindUnavailable, hubspot.KindLocked, hubspot.KindMigrating, hubspot.KindUnknown:
			return "try again later"
		case hubspot.KindNotSent:
			return "check the token's variable, HUBSPOT_BASE_URL and the network"
		default:
		}
	}
	return "run 'hubsync doctor'"
}
