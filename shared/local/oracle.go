package local

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"hubsync/shared/hubspot/hubspottest"
	"hubsync/shared/routing"
)

// Expected is what HubSpot must show for one subscription in the end: a line of an
// expected file.
type Expected struct {
	BrandID        string `json:"brandId"`
	ProductID      string `json:"productId"`
	Email          string `json:"email"`
	SubscriptionID int64  `json:"subscriptionId"`
	Status         string `json:"status"`
}

// ReadExpected reads an expected file, one JSON object a line.
func ReadExpected(content []byte) ([]Expected, error) {
	var rows []Expected
	d := json.NewDecoder(strings.NewReader(string(content)))
	d.DisallowUnknownFields()
	for d.More() {
		var e Expected
		if err := d.Decode(&e); err != nil {
			return nil, fmt.Errorf("expected file, row %d: %w", len(rows)+1, err)
		}
		rows = append(rows, e)
	}
	return rows, nil
}

// cellKey is a subscription as the outside sees it.
type cellKey struct{ brand, product, email string }

// believed is what the oracle knows of a subscription.
type believed struct {
	subscribed bool
	consentAt  time.Time
	optedOutAt time.Time
}

// oracle says what must be, from the accepted requests and from what HubSpot held
// before, without anything of the product's: an unsubscribe always takes effect; a
// subscribe does unless an opt-out of the subscription, ours or one made inside HubSpot,
// is not older than its consent.
func oracle(routes *routing.File, changes []Change, statuses []int, state hubspottest.State, now time.Time) ([]Expected, error) {
	products := map[[2]string]routing.Product{}
	for _, b := range routes.Brands {
		for _, p := range b.Products {
			products[[2]string{b.ID, p.ID}] = p
		}
	}
	cells := map[cellKey]*believed{}
	var order []cellKey
	for i, c := range changes {
		if statuses[i] != http.StatusAccepted || c.Method != http.MethodPost || !strings.HasSuffix(c.Path, "/subscriptions") {
			continue
		}
		d := c.decision()
		key := cellKey{c.brand(), d.ProductID, strings.ToLower(strings.TrimSpace(d.Email))}
		if cells[key] == nil {
			cells[key] = &believed{}
			order = append(order, key)
		}
		consent := now
		if d.OccurredAt != "" {
			at, err := time.Parse(time.RFC3339Nano, d.OccurredAt)
			if err != nil {
				return nil, fmt.Errorf("request %d was accepted with a date that is none", i+1)
			}
			if at.Before(now) {
				consent = at
			}
		}
		cells[key].decide(d.DesiredState == "subscribed", consent)
	}
	return settle(order, cells, products, state), nil
}

func (b *believed) decide(subscribe bool, consent time.Time) {
	if subscribe && !b.optedOutAt.IsZero() && !consent.After(b.optedOutAt) {
		return
	}
	b.subscribed, b.consentAt = subscribe, consent
	if !subscribe && consent.After(b.optedOutAt) {
		b.optedOutAt = consent
	}
}

// settle lets the opt-outs win that people made inside HubSpot before.
func settle(order []cellKey, cells map[cellKey]*believed, products map[[2]string]routing.Product, state hubspottest.State) []Expected {
	inside := map[string]time.Time{}
	for _, s := range state.Statuses {
		if s.Status == "UNSUBSCRIBED" {
			inside[fmt.Sprint(strings.ToLower(s.Email), " ", s.SubscriptionID)] = s.Timestamp
		}
	}
	rows := make([]Expected, 0, len(order))
	for _, key := range order {
		b, id := cells[key], products[[2]string{key.brand, key.product}].SubscriptionTypeID
		status := "UNSUBSCRIBED"
		at, optedOut := inside[fmt.Sprint(key.email, " ", id)]
		if b.subscribed && (!optedOut || at.Before(b.consentAt)) {
			status = "SUBSCRIBED"
		}
		rows = append(rows, Expected{key.brand, key.product, key.email, id, status})
	}
	return rows
}
