package console

import (
	"html/template"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"hubsync/shared/ops"
	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
)

// functions are what the pages may call.
var functions = template.FuncMap{
	"at":       stamp,
	"lane":     postgres.LaneName,
	"key":      shownKey,
	"statuses": func() []string { return statuses },
	"until":    func(t time.Time) string { return t.UTC().Format(time.DateTime) },
}

// statuses are what a search can be narrowed to.
var statuses = func() []string {
	names := []string{"open"}
	for _, s := range outbox.Statuses {
		names = append(names, string(s))
	}
	return names
}()

func stamp(t *time.Time) string {
	if t == nil {
		return "–"
	}
	return t.UTC().Format(time.DateTime)
}

// shownKey hides a contact key that looks like an address: some callers use them so.
func shownKey(key string) string {
	if strings.Contains(key, "@") {
		return "(hidden: it looks like an address)"
	}
	return key
}

// healthPage is the newest look, with the charts of all.
type healthPage struct {
	Status  *ops.Status // nil: there was none yet
	Portals []portalPart
	Totals  []chart
}

type portalPart struct {
	ops.PortalStatus
	Charts []chart
}

func (c *Console) healthPage() (healthPage, error) {
	samples, err := c.history.last()
	if len(samples) == 0 {
		return healthPage{}, err
	}
	newest := samples[len(samples)-1]
	p := healthPage{Status: &newest, Totals: totals(samples)}
	for _, portal := range newest.Portals {
		p.Portals = append(p.Portals, portalPart{portal, chartsOf(samples, portal.ID)})
	}
	return p, err
}

func (c *Console) health(w http.ResponseWriter, r *http.Request) {
	c.firstLook(r)
	p, err := c.healthPage()
	c.render(w, "health", "Health", p, err)
}

// firstLook looks at the state where nothing was seen yet.
func (c *Console) firstLook(r *http.Request) {
	if samples, _ := c.history.last(); len(samples) == 0 {
		c.Sample(r.Context())
	}
}

// live is the part of the health page that is fetched again and again.
func (c *Console) live(w http.ResponseWriter, r *http.Request) {
	c.firstLook(r)
	p, err := c.healthPage()
	c.render(w, "live", "Health", p, err)
}

// searchPage is what was looked for and found.
type searchPage struct {
	Query, Status, Code string
	Events              []postgres.EventRow
	Asked               bool
}

// search finds events by a contact's key, a request's id or idempotency key, or an
// event's id; or lists those of a status or a code.
func (c *Console) search(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	p := searchPage{Query: strings.TrimSpace(q.Get("q")), Status: q.Get("status"), Code: q.Get("code"), Asked: len(q) > 0}
	if !p.Asked {
		c.render(w, "search", "Events", p, nil)
		return
	}
	found, err := ask[ops.Events](r.Context(), c, "events.list", ops.EventsArgs{ContactKey: p.Query, Status: p.Status, Code: p.Code})
	if err == nil && len(found.Events) == 0 && p.Query != "" {
		if id, bad := uuid.Parse(p.Query); bad == nil {
			if d, none := ask[ops.EventDetail](r.Context(), c, "events.show", ops.EventArgs{ID: id.String()}); none == nil {
				http.Redirect(w, r, "/events/"+d.Event.ID, http.StatusSeeOther)
				return
			}
		}
		found, err = ask[ops.Events](r.Context(), c, "events.list", ops.EventsArgs{Request: p.Query, Status: p.Status, Code: p.Code})
	}
	p.Events = found.Events
	c.render(w, "search", "Events", p, err)
}

func (c *Console) event(w http.ResponseWriter, r *http.Request) {
	d, err := ask[ops.EventDetail](r.Context(), c, "events.show", ops.EventArgs{ID: r.PathValue("id")})
	if err != nil {
		c.render(w, "nothing", "Event", nil, err)
		return
	}
	c.render(w, "event", "Event", d, nil)
}

func (c *Console) audit(w http.ResponseWriter, r *http.Request) {
	log, err := ask[ops.AuditLog](r.Context(), c, "audit", ops.AuditArgs{})
	c.render(w, "audit", "Audit", log, err)
}
