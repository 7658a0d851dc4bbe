package relay

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
	"hubsync/shared/qstash"
)

// publishing is one pass's way through QStash, with the marks that it leads to.
type publishing struct {
	relay        *Relay
	probe        bool // the first call after the breaker was open
	result       Result
	marks        []postgres.Published
	unauthorized bool
	accepted     bool // QStash took at least one message
}

type message = []postgres.Publishable

// publish sends messages in batches. A batch that is refused as a whole is halved
// until the bad message is alone, and a bad message until the bad event is.
func (p *publishing) publish(ctx context.Context, messages []message) {
	for batch := range slices.Chunk(messages, qstash.MaxBatch) {
		p.batch(ctx, batch)
	}
}

func (p *publishing) batch(ctx context.Context, batch []message) {
	if p.unauthorized { // the token is refused: nothing more is tried in this pass
		p.failAll(batch, &qstash.Error{Kind: qstash.KindUnauthorized, Message: "the token is refused"})
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
	case errors.As(err, &qe) && (qe.Kind == qstash.KindInvalid || qe.Kind == qstash.KindTooLarge):
		p.split(ctx, batch, qe)
	case errors.As(err, &qe):
		p.failAll(batch, qe)
	default:
		p.failAll(batch, &qstash.Error{Kind: qstash.KindUnknown, Message: err.Error()})
	}
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
		p.dead(batch[0][0], qe)
	}
}

func (p *publishing) note(ctx context.Context, m message, r qstash.Result) {
	if r.Err != nil {
		if r.Err.Kind == qstash.KindInvalid || r.Err.Kind == qstash.KindTooLarge {
			p.split(ctx, []message{m}, r.Err)
			return
		}
		p.failAll([]message{m}, r.Err)
		return
	}
	p.accepted = true
	p.result.Messages++
	p.result.Published += len(m)
	if r.Deduplicated {
		p.result.Deduplicated += len(m)
	}
	for _, e := range m {
		p.marks = append(p.marks, postgres.Published{EventID: e.ID, MessageID: r.MessageID})
	}
}

func (p *publishing) dead(e postgres.Publishable, qe *qstash.Error) {
	p.result.Dead++
	p.relay.Logger.Error("QStash refuses this event's message", "event", e.ID.String(), "status", qe.Status)
	p.marks = append(p.marks, postgres.Published{EventID: e.ID, Dead: true, Code: "publish_config", Summary: qe.Error()})
}

// failAll makes events due again. The generation stays: a message that QStash has
// after all is recognised as a twin.
func (p *publishing) failAll(batch []message, qe *qstash.Error) {
	p.unauthorized = p.unauthorized || qe.Kind == qstash.KindUnauthorized
	for _, m := range batch {
		for _, e := range m {
			p.result.Retried++
			p.marks = append(p.marks, postgres.Published{
				EventID: e.ID, Code: "qstash_" + string(qe.Kind), Summary: qe.Error(),
				Delay: p.relay.retryIn(e.Attempts, qe), Unburnt: qe.Kind == qstash.KindUnauthorized,
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
	backoff := outbox.Backoff(min(attempts, 10), publishFloor, outbox.PublishCap, r.Random)
	return min(max(backoff, qe.RetryAfter), max(outbox.PublishCap, qe.RetryAfter))
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
