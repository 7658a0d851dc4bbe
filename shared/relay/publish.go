package relay

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
	"hubsync/shared/qstash"
)

// publishing is one pass's way through QStash, with the marks that it leads to.
type publishing struct {
	relay    *Relay
	probe    bool // the first call after the breaker was open
	result   Result
	marks    []postgres.Published
	accepted map[string]bool // portals of which QStash took a message in this pass
	refused  []refusal
	halted   *qstash.Error // why nothing more is tried in this pass
}

// refusal is an event that was alone in its message and that QStash refused.
type refusal struct {
	event postgres.Publishable
	err   *qstash.Error
}

type message = []postgres.Publishable

func newPublishing(r *Relay, probe bool) *publishing {
	return &publishing{relay: r, probe: probe, accepted: map[string]bool{}}
}

func (p *publishing) unauthorized() bool {
	return p.halted != nil && p.halted.Kind == qstash.KindUnauthorized
}

// publish sends messages in batches. A batch that is refused as a whole is halved
// until the bad message is alone, and a bad message until the bad event is.
func (p *publishing) publish(ctx context.Context, messages []message) {
	for batch := range slices.Chunk(messages, qstash.MaxBatch) {
		p.batch(ctx, batch)
	}
	p.endRefused()
}

func (p *publishing) batch(ctx context.Context, batch []message) {
	if p.halted == nil && ctx.Err() != nil {
		p.halted = &qstash.Error{Kind: qstash.KindUnavailable, Message: "the pass's time is up; nothing was sent"}
	}
	if p.halted != nil {
		p.retry(batch, p.halted, true)
		return
	}
	wire := make([]qstash.Message, len(batch))
	for i, m := range batch {
		wire[i] = p.relay.wire(m)
	}
	results, err := p.relay.Publisher.PublishBatch(ctx, wire)
	var qe *qstash.Error
	switch {
	case err == nil:
		for i, m := range batch {
			p.note(ctx, m, results[i])
		}
	case errors.As(err, &qe) && permanent(qe):
		p.split(ctx, batch, qe)
	default:
		if qe == nil {
			qe = &qstash.Error{Kind: qstash.KindUnknown, Message: "publishing ended without an answer"}
		}
		// A limit, an outage or a refused token meets the next batch as well.
		p.halted = qe
		p.retry(batch, qe, qe.Kind == qstash.KindUnauthorized)
	}
}

// permanent: QStash refuses what it was sent, and would again.
func permanent(qe *qstash.Error) bool {
	refused := qe.Kind == qstash.KindInvalid || qe.Kind == qstash.KindTooLarge
	// An item of a batch has no kind of its own: its status says what it is.
	return refused && qe.Status != http.StatusTooManyRequests && qe.Status < 500
}

// split isolates what a batch was refused for.
func (p *publishing) split(ctx context.Context, batch []message, qe *qstash.Error) {
	switch {
	case len(batch) > 1:
		p.batch(ctx, batch[:len(batch)/2])
		p.batch(ctx, batch[len(batch)/2:])
	case len(batch[0]) > 1:
		half := len(batch[0]) / 2
		p.batch(ctx, []message{batch[0][:half]})
		p.batch(ctx, []message{batch[0][half:]})
	default:
		p.refused = append(p.refused, refusal{batch[0][0], qe})
		if len(p.refused) >= refusedMost && len(p.accepted) == 0 {
			p.halted = qe
		}
	}
}

func (p *publishing) note(ctx context.Context, m message, r qstash.Result) {
	if r.Err != nil {
		if permanent(r.Err) {
			p.split(ctx, []message{m}, r.Err)
			return
		}
		p.retry([]message{m}, r.Err, false)
		return
	}
	p.accepted[m[0].PortalID] = true
	p.result.Messages++
	p.result.Published += len(m)
	if r.Deduplicated {
		p.result.Deduplicated += len(m)
	}
	for _, e := range m {
		p.marks = append(p.marks, postgres.Published{EventID: e.ID, MessageID: r.MessageID})
	}
}

// endRefused decides about the events that were refused alone. Only where QStash took
// another message of the same portal in the same pass is it the event that is bad: it is
// dead. Otherwise it may be what all messages share, such as a wrong address or key,
// and a mistake in the configuration must not end every decision that waits.
func (p *publishing) endRefused() {
	for _, r := range p.refused {
		log := p.relay.Logger.With("event", r.event.ID.String(), "portal", r.event.PortalID, "error", r.err.Error())
		if !p.accepted[r.event.PortalID] {
			log.Error("QStash refuses this event's message, and took no other of its portal: is the configuration right?")
			p.retry([]message{{r.event}}, r.err, false)
			continue
		}
		log.Error("QStash refuses this event's message: it is dead")
		p.result.Dead++
		p.marks = append(p.marks, postgres.Published{EventID: r.event.ID, Dead: true, Code: "publish_config", Summary: r.err.Error()})
	}
}

// retry makes events due again. The generation stays: a message that QStash has after
// all is recognised as a twin. An attempt that was none is not counted.
func (p *publishing) retry(batch []message, qe *qstash.Error, unburnt bool) {
	for _, m := range batch {
		for _, e := range m {
			attempts := e.Attempts
			if unburnt {
				attempts--
			}
			p.result.Retried++
			p.marks = append(p.marks, postgres.Published{
				EventID: e.ID, Code: "qstash_" + string(qe.Kind), Summary: qe.Error(),
				Delay: p.relay.retryIn(attempts, qe), Unburnt: unburnt,
			})
		}
	}
}

// retryIn is how long an event waits after a failed try: as told, else full jitter. A
// refused token makes nothing wait longer: the breaker holds everything.
func (r *Relay) retryIn(attempts int, qe *qstash.Error) time.Duration {
	if qe.Kind == qstash.KindUnauthorized {
		return 0
	}
	limit := outbox.PublishCap
	if qe.Kind == qstash.KindUnavailable || qe.Kind == qstash.KindUnknown {
		limit = outageCap
	}
	return max(outbox.Backoff(attempts, publishFloor, limit, r.Random), qe.RetryAfter)
}

// wire writes a message as QStash takes it: references only.
func (r *Relay) wire(m message) qstash.Message {
	ids := make([]uuid.UUID, len(m))
	references := make([]outbox.Reference, len(m))
	for i, e := range m {
		ids[i], references[i] = e.ID, outbox.Reference{EventID: e.ID, Generation: e.Generation}
	}
	body, err := outbox.EncodeMessage(ids)
	if err != nil {
		body = nil // UUIDs always encode; an empty body would be refused by the worker
	}
	out := qstash.Message{
		Destination:     r.Destination,
		Body:            body,
		DeduplicationID: outbox.DeduplicationID(references),
		FlowControl: qstash.FlowControl{
			Key:  "hubsync-" + r.Env + "-" + m[0].PortalID + "-" + m[0].Lane.String(),
			Rate: int(float64(r.Rate) * r.RateScale), Period: r.Period, Parallelism: r.Parallelism,
		},
		Retries: r.Retries, RetryDelay: r.RetryDelay, Timeout: outbox.DeliverTimeout,
		FailureCallback: r.Destination + "/failed", FailureCallbackRetries: callbackRetries,
		Label: "hubsync-" + r.Env,
	}
	if trace := commonTrace(m); trace != "" {
		out.Forward = map[string]string{"traceparent": trace}
	}
	return out
}

// commonTrace is the caller's trace, where a message has one caller.
func commonTrace(m message) string {
	for _, e := range m {
		if e.Traceparent != m[0].Traceparent {
			return ""
		}
	}
	return m[0].Traceparent
}
