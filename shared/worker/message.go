package worker

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
	"hubsync/shared/telemetry"
)

// serveMessage handles one delivery of a message.
func (w *Worker) serveMessage(rw http.ResponseWriter, r *http.Request) {
	started := w.Clock()
	ctx, cancel := context.WithTimeout(r.Context(), w.Limit)
	defer cancel()
	body, reply, ok := w.verified(ctx, r, w.subject(r))
	if !ok {
		reply.write(rw)
		return
	}
	ids, err := outbox.DecodeMessage(body)
	if err != nil {
		w.Logger.Error("message refused", "reason", err.Error(), "message", r.Header.Get("Upstash-Message-Id"))
		replyUnprocessable("malformed body").write(rw)
		return
	}
	d := delivery{
		worker: w, ids: ids, started: started,
		retried:   retriedOf(r),
		messageID: r.Header.Get("Upstash-Message-Id"),
	}
	d.handle(ctx).write(rw)
}

// verified reads the raw body and checks its signature before anything else is touched.
func (w *Worker) verified(ctx context.Context, r *http.Request, subject string) ([]byte, reply, bool) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return nil, replyStatus(http.StatusBadRequest, "body could not be read"), false
	}
	if len(body) > maxBody {
		return nil, replyStatus(http.StatusRequestEntityTooLarge, "body is too large"), false
	}
	if err := w.Verifier.Verify(ctx, r.Header.Get("Upstash-Signature"), body, subject); err != nil {
		w.Logger.Warn("signature refused", "reason", err.Error())
		w.Metrics.Emit(telemetry.Of(telemetry.SignatureFailures, 1))
		return nil, replyStatus(http.StatusUnauthorized, "signature"), false
	}
	return body, reply{}, true
}

func retriedOf(r *http.Request) int {
	n, err := strconv.Atoi(r.Header.Get("Upstash-Retried"))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// delivery is one arrival of a message.
type delivery struct {
	worker    *Worker
	ids       []uuid.UUID
	started   time.Time
	retried   int
	messageID string
}

// handle claims, works, commits and decides the reply.
func (d delivery) handle(ctx context.Context) reply {
	w := d.worker
	claims, err := w.DB.ClaimEvents(ctx, d.ids, postgres.ClaimOptions{
		Lease: w.Lease, Late: w.Late, CheckDelay: w.CallTimeout + w.CheckMargin, MaxAttempts: w.MaxAttempts,
	})
	if err != nil {
		w.Logger.Error("claim failed", "message", d.messageID, "error", err.Error())
		return replyLater(databaseAway)
	}
	rows := rowsOf(claims)
	for _, j := range w.jobs(rows, d.started.Add(w.Lease)) {
		j.run(ctx)
	}
	answer := decideReply(rows, d.retried < w.Retries)
	settled, err := w.commit(ctx, rows)
	if err != nil {
		// Nothing was released: the leases run out, and the next claim is a takeover.
		w.Logger.Error("commit failed", "message", d.messageID, "error", err.Error())
		return replyLater(databaseAway)
	}
	d.log(ctx, claims, rows, settled, answer)
	return answer
}

// commit settles the claimed rows, also when the message's own time is up: what
// HubSpot confirmed must not be forgotten for want of a second.
func (w *Worker) commit(ctx context.Context, rows []*row) ([]postgres.Settled, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	var settlements []postgres.Settlement
	var receipts []postgres.Receipt
	for _, r := range rows {
		if r.claim.Verdict == postgres.VerdictClaimed {
			settlements = append(settlements, r.settlement(w.NewID))
			receipts = append(receipts, r.receipts...)
		}
	}
	return w.DB.SettleEvents(ctx, settlements, receipts, postgres.SettleOptions{
		Late: w.Late, CheckDelay: w.CallTimeout + w.CheckMargin, Audit: w.auditDelay(),
	})
}

// auditDelay spreads the next look at a settled subscription over the second half
// of the audit period, so that an import does not come due for audit in one minute.
func (w *Worker) auditDelay() time.Duration {
	half := w.Audit / 2
	return half + time.Duration(w.Random()*float64(half))
}

// log writes the canonical lines: one per event, and one per message.
func (d delivery) log(ctx context.Context, claims []postgres.Claim, rows []*row, settled []postgres.Settled, answer reply) {
	w := d.worker
	ends := map[uuid.UUID]postgres.Settled{}
	for _, s := range settled {
		ends[s.EventID] = s
	}
	for _, r := range rows {
		end, level := string(r.claim.Verdict), slog.LevelDebug
		if r.claim.Verdict == postgres.VerdictClaimed {
			end = string(ends[r.claim.EventID].Status)
			if !ends[r.claim.EventID].Held {
				end = "claim_lost"
			}
		}
		if r.failure.code != "" || r.unknown || end == "claim_lost" {
			level = slog.LevelWarn
		}
		w.Logger.LogAttrs(ctx, level, "event",
			slog.String("event", r.claim.EventID.String()), slog.String("to", end),
			slog.String("portal", r.claim.PortalID), slog.String("lane", r.claim.Lane.String()),
			slog.Int("attempt", r.claim.Attempts+1), slog.Int64("sequence", r.claim.Sequence),
			slog.Bool("takeover", r.claim.Takeover), slog.Bool("unknown", r.unknown),
			slog.String("code", r.failure.code), slog.String("correlation", r.failure.correlationID),
			slog.String("traceparent", r.claim.Traceparent))
	}
	if missing := len(d.ids) - len(claims); missing > 0 {
		w.Logger.Error("message names events that do not exist", "message", d.messageID, "missing", missing)
	}
	took := w.Clock().Sub(d.started)
	w.Metrics.Emit(measured(rows, ends, took)...)
	w.Logger.LogAttrs(ctx, slog.LevelInfo, "message", slog.String("message", d.messageID),
		slog.Int("events", len(claims)), slog.Int("retried", d.retried), slog.Int("status", answer.status),
		slog.Duration("took", took))
}

// errLeaseTooShort says that a call was not started because its timeout would not
// have fitted into the claim's lease, or into the message's time.
var errLeaseTooShort = errors.New("no time left for another call within the lease")
