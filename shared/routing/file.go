package routing

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	json "github.com/go-json-experiment/json"
	"github.com/goccy/go-yaml"
)

// File is a routes file, JSON or YAML.
type File struct {
	Portals []Portal `json:"portals"`
	Brands  []Brand  `json:"brands"`
}

// Portal is one HubSpot account.
type Portal struct {
	ID         string `json:"id"`
	HubID      int64  `json:"hubId"`
	APIVersion string `json:"apiVersion,omitzero"` // default 2026-03
	Burst      Burst  `json:"burst"`
	Daily      int    `json:"daily"`             // calls a day, our share of the account's
	Plan       string `json:"plan,omitzero"`     // enterprise (default) or professional
	TimeZone   string `json:"timeZone,omitzero"` // default UTC; the daily limit resets at its midnight
}

// Burst is a portal's call limit in a rolling window.
type Burst struct {
	Limit  int    `json:"limit"`
	Window string `json:"window"` // a Go duration; HubSpot's is 10s
}

// Brand is one brand with its products; all of them live in one portal.
type Brand struct {
	ID             string    `json:"id"`
	Name           string    `json:"name,omitzero"`
	Portal         string    `json:"portal"`
	BusinessUnitID int64     `json:"businessUnitId,omitzero"`
	Products       []Product `json:"products"`
}

// Product is a subscription that people of this brand can have.
type Product struct {
	ID                 string   `json:"id"`
	Channel            string   `json:"channel,omitzero"` // EMAIL
	SubscriptionTypeID int64    `json:"subscriptionTypeId"`
	LegalBasis         string   `json:"legalBasis"`
	Targets            []Target `json:"targets,omitzero"`
}

// DefaultAPIVersion is what a portal speaks when its file names no version.
const DefaultAPIVersion = "2026-03"

// WindowDuration returns the burst window; Parse has checked it.
func (b Burst) WindowDuration() time.Duration {
	d, err := time.ParseDuration(b.Window)
	if err != nil {
		return 10 * time.Second
	}
	return d
}

// Parse reads a routes file and checks it. Every problem is named, not only the first.
func Parse(content []byte) (*File, error) {
	content = bytes.TrimSpace(bytes.TrimPrefix(content, []byte("\xef\xbb\xbf")))
	if len(content) == 0 {
		return nil, errors.New("routes file is empty: it needs portals and brands")
	}
	if content[0] != '{' {
		converted, err := yaml.YAMLToJSON(content)
		if err != nil {
			return nil, fmt.Errorf("routes file is neither JSON nor YAML: %w", err)
		}
		content = converted
	}
	var f File
	if err := json.Unmarshal(content, &f, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("routes file: %w", err)
	}
	f.applyDefaults()
	if err := f.validate(); err != nil {
		return nil, err
	}
	return &f, nil
}

func (f *File) applyDefaults() {
	for i := range f.Portals {
		p := &f.Portals[i]
		if p.APIVersion == "" {
			p.APIVersion = DefaultAPIVersion
		}
		if p.TimeZone == "" {
			p.TimeZone = "UTC"
		}
		if p.Plan == "" {
			p.Plan = "enterprise"
		}
		if p.Burst.Window == "" {
			p.Burst.Window = "10s"
		}
	}
	for i := range f.Brands {
		b := &f.Brands[i]
		if b.Name == "" {
			b.Name = b.ID
		}
		for j := range b.Products {
			if b.Products[j].Channel == "" {
				b.Products[j].Channel = "EMAIL"
			}
		}
	}
}

// Snapshot resolves one product of a brand under a mapping version.
func (b Brand) Snapshot(p Product, version int) Snapshot {
	return Snapshot{
		Portal: b.Portal, BrandID: b.ID, ProductID: p.ID, MappingVersion: version,
		Channel: p.Channel, SubscriptionTypeID: p.SubscriptionTypeID,
		BusinessUnitID: b.BusinessUnitID, LegalBasis: p.LegalBasis, Targets: p.Targets,
	}
}

// Hash tells whether a brand's mapping differs from the version before it.
func (b Brand) Hash() (string, error) {
	content, err := json.Marshal(b, json.Deterministic(true))
	if err != nil {
		return "", fmt.Errorf("hash mapping of brand %s: %w", b.ID, err)
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:]), nil
}
