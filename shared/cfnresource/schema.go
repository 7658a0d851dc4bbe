package cfnresource

import (
	"context"
	"fmt"
	"slices"
)

// Schema returns the resource that stands for the database's schema. Its property Version
// is a hash of migrations/; hashes are those of the schema after each migration that this
// program carries, the newest last. migrate brings the database to the newest.
//
// Deletion keeps the data. A schema only ever grows, so the code before the last
// deployment runs on it, and a rollback to an older version has nothing to do. A version
// that this program does not carry is a template deployed with yesterday's build.
func Schema(hashes []string, migrate func(context.Context) error) func(context.Context, Request) error {
	return func(ctx context.Context, r Request) error {
		if r.RequestType == Delete {
			return nil
		}
		want := fmt.Sprint(r.ResourceProperties["Version"])
		at := slices.Index(hashes, want)
		switch {
		case at >= 0 && at == len(hashes)-1:
			return migrate(ctx)
		case at >= 0 && r.RequestType == Update:
			return nil
		}
		return fmt.Errorf("the template asks for schema %s, and this build makes %s: run `make schema-hash` and `sam build`, then deploy again", want, hashes[len(hashes)-1])
	}
}
