package intake

import (
	"net/http"

	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
)

// allBrands and allProducts stand where a decision names one.
const (
	allBrands   = "*"
	allProducts = "*"
)

// postBrandOptOut takes an opt-out of everything in a brand: of the subscriptions that
// there are, and of those that do not exist yet.
func (h *handler) postBrandOptOut(w http.ResponseWriter, r *http.Request, params []string) answer {
	if params[0] == allBrands {
		return notFound("unknown-brand", "This brand does not exist; an opt-out of all brands is POST /v1/unsubscribe-all.")
	}
	return h.optOutOfAll(w, r, params[0])
}

// postOptOut takes an opt-out of everything in all brands.
func (h *handler) postOptOut(w http.ResponseWriter, r *http.Request, _ []string) answer {
	return h.optOutOfAll(w, r, allBrands)
}

func (h *handler) optOutOfAll(w http.ResponseWriter, r *http.Request, brandID string) answer {
	b, key, problems, refused := readRequest(w, r, wideMembers)
	if refused != nil {
		return *refused
	}
	b.productID = text{value: allProducts, present: true}
	b.desiredState = text{value: string(outbox.Unsubscribed), present: true}
	d, problems := judge(brandID, b, problems)
	if len(problems) > 0 {
		return invalid(problems)
	}
	row, err := h.newDecision(d, key)
	if err != nil {
		return failed(err)
	}
	row.Source, row.Traceparent = "unsubscribe_all", traceparent(r.Header.Values("Traceparent"))
	stored, err := h.db.UnsubscribeAll(r.Context(), row)
	if err != nil {
		return failed(err)
	}
	return h.receipt(d, row, stored)
}

// emailAnswer is the body of PUT …/email. No address.
type emailAnswer struct {
	Status        string `json:"status"` // changed, unchanged
	Subscriptions int    `json:"subscriptions"`
}

// putEmail gives a contact another address. It needs no key: done twice it is done once.
func (h *handler) putEmail(w http.ResponseWriter, r *http.Request, params []string) answer {
	if refused := checkMediaType(r.Header); refused != nil {
		return *refused
	}
	raw, refused := readBody(w, r)
	if refused != nil {
		return *refused
	}
	b, problems := decodeBody(raw, addressMembers)
	if unreadable(problems) {
		return invalid(problems)
	}
	j := judgement{problems: problems}
	address := j.address(b.email, false)
	if len(j.problems) > 0 {
		return invalid(j.problems)
	}
	change, err := h.db.ChangeEmail(r.Context(), params[0], params[1], address.Given, address.Key)
	if err != nil {
		return failed(err)
	}
	switch change.Outcome {
	case postgres.EmailUnknownBrand:
		return notFound("unknown-brand", "This brand does not exist.")
	case postgres.EmailUnknownContact:
		return notFound("unknown-contact", "No contact is known under this key.").about(params[0], "")
	case postgres.EmailGone:
		return gone().about(params[0], "")
	case postgres.EmailTaken:
		return refusal(http.StatusConflict, "address-taken", "The address belongs to another contact",
			"Nothing was changed; the two contacts are listed for a person. Decisions for the address go to the contact that has it.").about(params[0], "")
	case postgres.EmailChanged, postgres.EmailUnchanged:
	}
	a := answer{status: http.StatusOK, outcome: "address_" + string(change.Outcome), body: emailAnswer{string(change.Outcome), change.Subscriptions}}
	if change.Subscriptions > 0 {
		a.status = http.StatusAccepted // HubSpot shows it later
	}
	return a.about(params[0], "")
}
