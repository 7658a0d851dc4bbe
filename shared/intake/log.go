package intake

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/google/uuid"

	"hubsync/shared/postgres"
	"hubsync/shared/telemetry"
)

// record writes the canonical log line: no address, no contact key, no body, and
// nothing of a path that matched no route.
func (h *handler) record(r *http.Request, template string, a answer, took time.Duration) {
	level := slog.LevelInfo
	if a.status >= http.StatusInternalServerError {
		level = slog.LevelError
	}
	attributes := []slog.Attr{
		slog.String("method", knownMethod(r.Method)),
		slog.String("route", template),
		slog.Int("status", a.status),
		slog.String("outcome", a.outcome),
		slog.Duration("duration", took),
	}
	if a.requestID != uuid.Nil {
		attributes = append(attributes, slog.String("requestId", a.requestID.String()))
	}
	if a.brandID != "" {
		attributes = append(attributes, slog.String("brand", a.brandID))
	}
	if a.productID != "" {
		attributes = append(attributes, slog.String("product", a.productID))
	}
	if a.err != nil {
		attributes = append(attributes, slog.String("error", a.err.Error()))
	}
	h.log.LogAttrs(r.Context(), level, "intake request", attributes...)
	h.metrics.Emit(measured(a.status, a.outcome, took)...)
}

// measured is what a request counts as.
func measured(status int, outcome string, took time.Duration) []telemetry.Value {
	values := []telemetry.Value{telemetry.Lasted(telemetry.RequestDuration, took)}
	count := func(m telemetry.Metric) { values = append(values, telemetry.Of(m, 1)) }
	switch {
	case status >= http.StatusInternalServerError:
		count(telemetry.RequestsFailed)
	case status >= http.StatusBadRequest:
		count(telemetry.RequestsRefused)
	case status == http.StatusAccepted:
		count(telemetry.DecisionsAccepted)
	case outcome == string(postgres.DecisionReplayed):
		count(telemetry.DecisionsReplayed)
	}
	return values
}

// knownMethod keeps a stranger's text out of the log.
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	}
	return "other"
}
