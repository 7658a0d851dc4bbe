package worker

import (
	"net/http"

	"hubsync/shared/outbox"
	"hubsync/shared/qstash"
)

// serveFailed handles QStash's failure callback: a message ran out of retries. Its
// events that are still queued become due again in a new generation; every other
// state has its own deadline, so a late or repeated callback changes nothing.
func (w *Worker) serveFailed(rw http.ResponseWriter, r *http.Request) {
	body, answer, ok := w.verified(r.Context(), r, callbackOf(w.subject(r)))
	if !ok {
		answer.write(rw)
		return
	}
	failed, err := qstash.DecodeFailure(body)
	if err != nil {
		w.Logger.Error("failure callback refused", "reason", err.Error())
		replyUnprocessable("malformed failure callback").write(rw)
		return
	}
	ids, err := outbox.DecodeMessage(failed.SourceBody)
	if err != nil {
		w.Logger.Error("failure callback names no events", "reason", err.Error(), "message", failed.SourceMessageID)
		replyUnprocessable("malformed source message").write(rw)
		return
	}
	count, err := w.DB.RequeueFailed(r.Context(), ids, failed.SourceMessageID)
	if err != nil {
		w.Logger.Error("failure callback not recorded", "message", failed.SourceMessageID, "error", err.Error())
		replyLater(databaseAway).write(rw)
		return
	}
	w.Logger.Warn("message ran out of retries", "message", failed.SourceMessageID, "status", failed.Status,
		"events", len(ids), "requeued", count)
	replyStatus(http.StatusOK, "ok").write(rw)
}
