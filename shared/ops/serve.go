package ops

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	json "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Request asks for one verb, here or through the admin function.
type Request struct {
	Verb string         `json:"verb"`
	Args jsontext.Value `json:"args,omitzero"` // the verb's arguments, an object
	By   string         `json:"by,omitzero"`   // who asks, for the audit
}

// Response is the answer to a Request: a result, or an error as text.
type Response struct {
	Result jsontext.Value `json:"result,omitzero"`
	Error  string         `json:"error,omitzero"`
	Usage  bool           `json:"usage,omitzero"` // the error is a mistake in the arguments
}

// verb runs one of Ops' methods on JSON.
type verb struct {
	run func(context.Context, *Ops, jsontext.Value) (any, error)
	// acts: it changes something, and is written into the audit.
	acts bool
}

func asks[A, R any](f func(*Ops, context.Context, A) (R, error)) verb {
	return verb{run: func(ctx context.Context, o *Ops, args jsontext.Value) (any, error) {
		var in A
		if len(args) > 0 {
			if err := json.Unmarshal(args, &in, json.RejectUnknownMembers(true)); err != nil {
				return nil, usage("arguments: %v", err)
			}
		}
		return f(o, ctx, in)
	}}
}

func acts[A, R any](f func(*Ops, context.Context, A) (R, error)) verb {
	v := asks(f)
	v.acts = true
	return v
}

// verbs is everything that can be asked for by name.
var verbs = map[string]verb{
	"routes.validate":   asks((*Ops).RoutesValidate),
	"routes.plan":       asks((*Ops).RoutesPlan),
	"routes.apply":      acts((*Ops).RoutesApply),
	"routes.history":    asks((*Ops).RoutesHistory),
	"portal.check":      acts((*Ops).PortalCheck),
	"keys.check":        asks((*Ops).KeysCheck),
	"doctor":            asks((*Ops).Doctor),
	"status":            asks((*Ops).Status),
	"events.list":       asks((*Ops).Events),
	"events.show":       asks((*Ops).ShowEvent),
	"pause":             acts((*Ops).Pause),
	"resume":            acts((*Ops).Resume),
	"budget.set":        acts((*Ops).SetBudget),
	"replay":            acts((*Ops).Replay),
	"drift.report":      asks((*Ops).DriftReport),
	"drift.approve":     acts((*Ops).DriftApprove),
	"conflicts.list":    asks((*Ops).Conflicts),
	"conflicts.resolve": acts((*Ops).ConflictsResolve),
	"evidence":          acts((*Ops).Evidence), // it reads a person's data: who did is kept
	"audit":             asks((*Ops).Audit),
}

// Verbs lists the names of all verbs.
func Verbs() []string { return slices.Sorted(maps.Keys(verbs)) }

// Serve runs a verb. Its error is part of the response, so that it arrives the same way
// from the admin function.
func (o *Ops) Serve(ctx context.Context, r Request) Response {
	v, ok := verbs[r.Verb]
	if !ok {
		return failed(usage("verb %q is not one of %s", r.Verb, strings.Join(Verbs(), ", ")))
	}
	if !v.acts || o.cfg.DB == nil {
		return o.run(ctx, v, r)
	}
	id, err := o.begin(ctx, r)
	if err != nil {
		return failed(err)
	}
	response := o.run(ctx, v, r)
	if err := o.end(ctx, id, response); err != nil {
		return failed(fmt.Errorf("%s was done (%s), but not written into the audit: %w", r.Verb, response.text(), err))
	}
	return response
}

func (o *Ops) run(ctx context.Context, v verb, r Request) Response {
	result, err := v.run(ctx, o, r.Args)
	if err != nil {
		return failed(err)
	}
	text, err := json.Marshal(result)
	if err != nil {
		return failed(fmt.Errorf("%s: write the answer: %w", r.Verb, err))
	}
	return Response{Result: text}
}

func (r Response) text() string {
	if r.Error != "" {
		return "failed: " + r.Error
	}
	return "it worked"
}

func failed(err error) Response {
	var mistake *UsageError
	return Response{Error: err.Error(), Usage: errors.As(err, &mistake)}
}
