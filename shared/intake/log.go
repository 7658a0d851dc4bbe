package intake

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/google/uuid"
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
}

// knownMethod keeps a stranger's text out of the log.
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	}
	return "other"
}
