package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"hubsync/shared/ops"
)

// deed is something that a form asks for: first what it would do, then that it be done.
type deed struct {
	Verb   string
	Fields [][2]string // name and value, carried from the question to the deed
	What   string
}

// ask shows what a deed would do, and asks.
func (c *Console) ask(w http.ResponseWriter, r *http.Request) {
	d, err := c.question(r)
	if err != nil {
		c.render(w, "nothing", "Not done", nil, err)
		return
	}
	c.render(w, "confirm", "Confirm", d, nil)
}

func (c *Console) question(r *http.Request) (deed, error) {
	d := deed{Verb: r.PostFormValue("verb")}
	carry := func(names ...string) {
		for _, n := range names {
			if v := strings.TrimSpace(r.PostFormValue(n)); v != "" {
				d.Fields = append(d.Fields, [2]string{n, v})
			}
		}
	}
	switch d.Verb {
	case "pause":
		carry("portal", "optOuts", "reason", "minutes")
		d.What = "Pause portal " + r.PostFormValue("portal")
		if r.PostFormValue("optOuts") != "" {
			d.What += ", opt-outs too"
		}
	case "resume":
		carry("portal")
		d.What = "Let portal " + r.PostFormValue("portal") + " go on"
	case "replay":
		carry("code", "brand")
		found, err := ask[ops.Replayed](r.Context(), c, "replay", ops.ReplayArgs{Code: r.PostFormValue("code"), Brand: r.PostFormValue("brand"), DryRun: true})
		if err != nil {
			return d, err
		}
		d.What = fmt.Sprintf("Replay %d events under the active mapping, over %.0f s", found.Events, found.Seconds)
	default:
		return d, fmt.Errorf("%q is not one of pause, resume, replay", d.Verb)
	}
	return d, nil
}

// act does what was confirmed, and shows what came of it.
func (c *Console) act(w http.ResponseWriter, r *http.Request) {
	what, err := c.done(r.Context(), r)
	if err != nil {
		c.render(w, "nothing", "Not done", nil, err)
		return
	}
	c.Sample(r.Context())
	c.render(w, "done", "Done", what, nil)
}

func (c *Console) done(ctx context.Context, r *http.Request) (string, error) {
	portal := r.PostFormValue("portal")
	switch verb := r.PostFormValue("verb"); verb {
	case "pause":
		minutes, err := strconv.Atoi(r.PostFormValue("minutes"))
		if r.PostFormValue("minutes") != "" && (err != nil || minutes < 0 || minutes > 60*24*365) {
			return "", errors.New("minutes takes a whole number, or nothing: until it is resumed")
		}
		p, err := ask[ops.Paused](ctx, c, verb, ops.PauseArgs{
			Portal: portal, Seconds: 60 * minutes, OptOuts: r.PostFormValue("optOuts") != "", Reason: strings.TrimSpace(r.PostFormValue("reason")),
		})
		return p.What + " is paused", err
	case "resume":
		p, err := ask[ops.Resumed](ctx, c, verb, ops.ResumeArgs{Portal: portal})
		return p.What + " goes on", err
	case "replay":
		p, err := ask[ops.Replayed](ctx, c, verb, ops.ReplayArgs{Code: r.PostFormValue("code"), Brand: r.PostFormValue("brand")})
		return fmt.Sprintf("%d events are replayed", p.Events), err
	default:
		return "", fmt.Errorf("%q is not one of pause, resume, replay", verb)
	}
}
