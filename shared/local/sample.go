package local

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"

	"github.com/google/uuid"
)

//go:embed sample
var sampleFiles embed.FS

// Files are the contents of a demo's files.
type Files struct {
	Routes, Changes, HubSpot, Expected []byte
}

// Sample is a small demo of the project's own.
func Sample() Files {
	read := func(name string) []byte {
		content, err := fs.ReadFile(sampleFiles, "sample/"+name)
		if err != nil {
			panic(err) // it is compiled in
		}
		return content
	}
	return Files{read("routes.yaml"), read("changes.ndjson"), read("hubspot.json"), read("expected.ndjson")}
}

// Curl is a request that works when it is pasted: the first product of the routes.
func (w *World) Curl() string {
	for _, b := range w.opts.Routes.Brands {
		for _, p := range b.Products {
			body, err := json.Marshal(map[string]any{
				"contactKey": "customer-1", "email": "ada@example.com", "productId": p.ID, "desiredState": "subscribed",
				"consent": map[string]string{"legalBasis": p.LegalBasis, "explanation": "footer form"},
			})
			if err != nil {
				continue // strings always encode
			}
			return fmt.Sprintf("curl -i %s/v1/brands/%s/subscriptions -H 'Content-Type: application/json' -H 'Idempotency-Key: %s' -d '%s'",
				w.APIURL, b.ID, uuid.NewString(), body)
		}
	}
	return "# the routes file has no product"
}
