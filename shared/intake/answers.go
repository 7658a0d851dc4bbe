package intake

import (
	"net/http"
	"net/url"
	"time"

	json "github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
)

// answer is what a route has to say, for the caller and for the log.
type answer struct {
	status  int
	headers [][2]string
	body    any

	// For the canonical log line. brand and product are set only once the database
	// knows them: until then they are a stranger's text.
	outcome            string
	requestID          uuid.UUID
	brandID, productID string
	err                error
}

func (a answer) with(name, value string) answer {
	a.headers = append(a.headers, [2]string{name, value})
	return a
}

func (a answer) about(brandID, productID string) answer {
	a.brandID, a.productID = brandID, productID
	return a
}

func (a answer) because(err error) answer {
	a.err = err
	return a
}

// write sends the answer. A failing write means that the caller is gone, and the
// same key will bring the answer again.
func (a answer) write(w http.ResponseWriter) error {
	content, err := json.Marshal(a.body)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return err
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	if _, isProblem := a.body.(problem); isProblem {
		header.Set("Content-Type", "application/problem+json")
	}
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	for _, h := range a.headers {
		header.Set(h[0], h[1])
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(append(content, '\n'))
	return nil
}

// receipt is the body of 202 and 200. A replay tells the same as the first
// answer; what became of the decision since stands under statusUrl.
type receipt struct {
	RequestID uuid.UUID `json:"requestId"`
	Status    string    `json:"status"`
	StatusURL string    `json:"statusUrl"`
	Replayed  bool      `json:"replayed"`
}

func (h *handler) statusURL(brandID string, requestID uuid.UUID) string {
	return h.baseURL + "/v1/brands/" + url.PathEscape(brandID) + "/subscription-requests/" + requestID.String()
}

// accepted answers a stored decision, or its replay. A decision that was
// superseded at once is stored like any other, and so is answered like any other.
func (h *handler) accepted(d decision, r postgres.DecisionReceipt) answer {
	statusURL := h.statusURL(d.brandID, r.RequestID)
	a := answer{
		status: http.StatusAccepted, outcome: string(r.Outcome), requestID: r.RequestID,
		body: receipt{RequestID: r.RequestID, Status: "accepted", StatusURL: statusURL},
	}
	if r.Outcome == postgres.DecisionReplayed {
		a.status = http.StatusOK
		a.body = receipt{RequestID: r.RequestID, Status: "accepted", StatusURL: statusURL, Replayed: true}
	}
	return a.with("Location", statusURL).about(d.brandID, d.productID)
}

// requestAnswer is the body of GET …/subscription-requests/{id}. No address, ever.
type requestAnswer struct {
	RequestID    uuid.UUID     `json:"requestId"`
	BrandID      string        `json:"brandId"`
	ProductID    string        `json:"productId"`
	DesiredState string        `json:"desiredState"`
	Status       string        `json:"status"` // pending, synced, superseded, dead, cancelled
	Reason       string        `json:"reason,omitempty"`
	AcceptedAt   time.Time     `json:"acceptedAt"`
	OccurredAt   *time.Time    `json:"occurredAt,omitempty"`
	Sequence     int64         `json:"sequence,omitzero"`
	Events       []eventAnswer `json:"events"`
}

type eventAnswer struct {
	Status        string     `json:"status"`
	Attempts      int        `json:"attempts"`
	NextAttemptAt *time.Time `json:"nextAttemptAt,omitempty"`
	CompletedAt   *time.Time `json:"completedAt,omitempty"`
	ErrorCode     string     `json:"errorCode,omitempty"`
}

func newRequestAnswer(s postgres.RequestState) requestAnswer {
	a := requestAnswer{
		RequestID: s.RequestID, BrandID: s.BrandID, ProductID: s.ProductID, DesiredState: s.DesiredState,
		Status: s.Status, Reason: s.Reason, AcceptedAt: s.AcceptedAt.UTC(), OccurredAt: utc(s.OccurredAt),
		Sequence: s.Sequence, Events: []eventAnswer{},
	}
	for _, e := range s.Events {
		a.Events = append(a.Events, eventAnswer{
			Status: e.Status, Attempts: e.Attempts, NextAttemptAt: utc(e.NextAttemptAt),
			CompletedAt: utc(e.CompletedAt), ErrorCode: e.ErrorCode,
		})
	}
	return a
}

// subscriptionAnswer is one element of GET …/contacts/{contactKey}/subscriptions.
type subscriptionAnswer struct {
	ProductID       string     `json:"productId"`
	DesiredState    string     `json:"desiredState"`
	Sequence        int64      `json:"sequence"`
	AppliedState    string     `json:"appliedState,omitempty"`
	AppliedSequence int64      `json:"appliedSequence"`
	Converged       bool       `json:"converged"` // HubSpot confirmed the latest decision, and nothing may land late
	HubSpotStatus   string     `json:"hubspotStatus,omitempty"`
	HubSpotSeenAt   *time.Time `json:"hubspotSeenAt,omitempty"`
	UpdatedAt       time.Time  `json:"updatedAt"`
}

func newSubscriptionAnswers(subscriptions []postgres.SubscriptionState) []subscriptionAnswer {
	answers := []subscriptionAnswer{}
	for _, s := range subscriptions {
		answers = append(answers, subscriptionAnswer{
			ProductID: s.ProductID, DesiredState: s.DesiredState, Sequence: s.Sequence,
			AppliedState: s.AppliedState, AppliedSequence: s.AppliedSequence,
			Converged:     s.AppliedSequence == s.Sequence && !s.Uncertain,
			HubSpotStatus: s.HubSpotStatus, HubSpotSeenAt: utc(s.HubSpotSeenAt), UpdatedAt: s.UpdatedAt.UTC(),
		})
	}
	return answers
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

// newDecision is the decision in the database's words.
func (h *handler) newDecision(d decision, key string) (postgres.Decision, error) {
	consent, err := d.consentJSON()
	return postgres.Decision{
		RequestID: h.newID(), EventID: h.newID(), BrandID: d.brandID, ProductID: d.productID,
		ContactKey: d.contactKey, Email: d.address.Given, EmailKey: d.address.Key,
		DesiredState: d.desiredState, IdempotencyKey: key, RequestHash: d.hash(),
		Source: "api", OccurredAt: d.occurredAt, Consent: consent, Lane: outbox.LaneLive, UndatedWindow: h.window,
	}, err
}
