package reconcile

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	json "github.com/go-json-experiment/json"
)

// Path is where the sweep can be asked for over HTTP, as the seed has it.
const Path = "/internal/reconcile"

// Handler serves GET Path with `Authorization: Bearer <secret>`; secret is asked at
// every request, and an empty one refuses everybody.
func (r *Reconciler) Handler(secret func(context.Context) (string, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if request.Method != http.MethodGet {
			w.Header().Set("Allow", http.MethodGet)
			problem(w, http.StatusMethodNotAllowed, "use GET")
			return
		}
		want, err := secret(request.Context())
		if err != nil {
			r.Logger.Error("CRON_SECRET cannot be read", "error", err.Error())
			problem(w, http.StatusServiceUnavailable, "try again later")
			return
		}
		if !authorized(request.Header.Get("Authorization"), want) {
			problem(w, http.StatusUnauthorized, "the bearer token is missing or wrong")
			return
		}
		result, err := r.Run(request.Context())
		if err != nil {
			r.Logger.Error("sweep failed", "error", err.Error())
			w.Header().Set("Retry-After", "10")
			problem(w, http.StatusServiceUnavailable, "the sweep did not finish; what it scheduled stays scheduled")
			return
		}
		write(w, http.StatusOK, "application/json", result)
	})
}

// authorized compares digests in constant time, so that neither the length nor a
// prefix of the secret can be measured.
func authorized(header, secret string) bool {
	token, ok := strings.CutPrefix(header, "Bearer ")
	got, want := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(secret))
	return ok && secret != "" && subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

func problem(w http.ResponseWriter, status int, detail string) {
	write(w, status, "application/problem+json", struct {
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{http.StatusText(status), status, detail})
}

func write(w http.ResponseWriter, status int, contentType string, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		status, body = http.StatusInternalServerError, nil
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the caller is gone: nothing to tell it
}
