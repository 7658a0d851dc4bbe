// Package webhook takes HubSpot's notifications about contacts. An event is a hint and
// nothing more: it makes the contact's subscriptions due for a check, which reads what
// HubSpot shows now. Events are unordered, may repeat, and may never come, so that no
// state is ever written from one, and the audit finds what they missed.
package webhook

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	json "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"hubsync/shared/postgres"
)

// Path is where HubSpot sends to.
const Path = "/webhooks/hubspot"

// Limits of one notification: HubSpot sends fewer than 100 events and waits 5 s.
const (
	maxBody   = 1 << 20
	maxAge    = 5 * time.Minute
	timeLimit = 4 * time.Second
)

// Config is what the handler needs; all of it is required.
type Config struct {
	DB *postgres.DB
	// Secrets returns the client secrets of the apps that may send, one per account; more
	// while one is rotated.
	Secrets func(context.Context) ([]string, error)
	// URL is the public address that HubSpot signs: https://…/webhooks/hubspot.
	URL    string
	Clock  func() time.Time
	Logger *slog.Logger
}

// Handler answers POST Path. It refuses whatever is not signed before it reads a word of
// it: 401 without detail.
func Handler(cfg Config) (http.Handler, error) {
	if cfg.DB == nil || cfg.Secrets == nil || cfg.URL == "" || cfg.Clock == nil || cfg.Logger == nil {
		return nil, errors.New("webhook: DB, Secrets, URL, Clock and Logger are required")
	}
	return &handler{cfg}, nil
}

type handler struct{ Config }

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "use POST", http.StatusMethodNotAllowed)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeLimit)
	defer cancel()
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil || len(body) > maxBody {
		http.Error(w, "the body is too large, or was cut off", http.StatusRequestEntityTooLarge)
		return
	}
	secrets, err := h.Secrets(ctx)
	if err != nil {
		h.Logger.Error("webhook: the secrets cannot be read", "error", err.Error())
		http.Error(w, "come back later", http.StatusServiceUnavailable)
		return
	}
	if !h.signed(r, body, secrets) {
		h.Logger.Warn("webhook: signature refused")
		http.Error(w, "signature", http.StatusUnauthorized)
		return
	}
	touched, err := touchedBy(body)
	if err != nil {
		h.Logger.Error("webhook: not a list of events", "error", err.Error())
		http.Error(w, "not a list of events", http.StatusBadRequest)
		return
	}
	due, err := h.DB.CheckRecordsNow(ctx, touched)
	if err != nil {
		h.Logger.Error("webhook: checks not scheduled", "error", err.Error())
		http.Error(w, "come back later", http.StatusServiceUnavailable)
		return
	}
	h.Logger.Info("webhook", "records", len(touched), "checks", due)
	w.WriteHeader(http.StatusNoContent)
}

// signed verifies HubSpot's signature v3: HMAC-SHA256 over method, address, body and the
// timestamp as it was sent.
func (h *handler) signed(r *http.Request, body []byte, secrets []string) bool {
	stamp := r.Header.Get("X-HubSpot-Request-Timestamp")
	ms, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return false
	}
	if age := h.Clock().Sub(time.UnixMilli(ms)); age > maxAge || age < -maxAge {
		return false
	}
	given, err := base64.StdEncoding.DecodeString(r.Header.Get("X-HubSpot-Signature-v3"))
	if err != nil || len(given) != sha256.Size {
		return false
	}
	address := h.URL
	if r.URL.RawQuery != "" {
		address += "?" + decoded.Replace(r.URL.RawQuery)
	}
	ok := false
	for _, secret := range secrets {
		if secret == "" {
			continue // an empty key would make everybody a signer
		}
		mac := hmac.New(sha256.New, []byte(secret))
		_, _ = io.WriteString(mac, r.Method+address) // a hash takes everything
		_, _ = mac.Write(body)
		_, _ = io.WriteString(mac, stamp)
		ok = hmac.Equal(mac.Sum(nil), given) || ok
	}
	return ok
}

// decoded are the characters that HubSpot signs as they are, whatever their encoding.
var decoded = strings.NewReplacer("%3A", ":", "%2F", "/", "%3F", "?", "%40", "@", "%21", "!", "%24", "$",
	"%27", "'", "%28", "(", "%29", ")", "%2A", "*", "%2C", ",", "%3B", ";",
	"%3a", ":", "%2f", "/", "%3f", "?", "%2a", "*", "%2c", ",", "%3b", ";")

// event is the part of HubSpot's that says what was touched.
type event struct {
	PortalID   int64   `json:"portalId"`
	ObjectID   int64   `json:"objectId"`
	PrimaryID  int64   `json:"primaryObjectId"` // of a merge
	MergedIDs  []int64 `json:"mergedObjectIds"`
	NewID      int64   `json:"newObjectId"`
	Type       string  `json:"subscriptionType"`
	ObjectType string  `json:"objectTypeId"`
}

// contactEvents are what may change what a contact's subscriptions show.
var contactEvents = []string{"contact.", "object."}

// touchedBy lists the records that a body's events are about, once each.
func touchedBy(body []byte) ([]postgres.PortalRecord, error) {
	var events []event
	if err := json.Unmarshal(body, &events, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, err
	}
	seen := map[postgres.PortalRecord]bool{}
	var touched []postgres.PortalRecord
	for _, e := range events {
		if !e.isContact() {
			continue
		}
		for _, id := range append([]int64{e.ObjectID, e.PrimaryID, e.NewID}, e.MergedIDs...) {
			record := postgres.PortalRecord{HubID: e.PortalID, RecordID: strconv.FormatInt(id, 10)}
			if id != 0 && !seen[record] {
				seen[record] = true
				touched = append(touched, record)
			}
		}
	}
	return touched, nil
}

func (e event) isContact() bool {
	for _, prefix := range contactEvents {
		if strings.HasPrefix(e.Type, prefix) {
			return e.ObjectType == "" || e.ObjectType == "0-1"
		}
	}
	return false
}
