// Command admin is the function inside the VPC that serves operators and deployments by
// lambda:Invoke: IAM says who may do what. {"verb":"migrate"} brings the database to the
// newest schema, and so does CloudFormation, which asks as for a custom resource; it
// connects to the database itself, not through the proxy. Every other verb is one of
// shared/ops, with its arguments in "args".
package main

import (
	"context"
	"net/http"
	"os"
	"time"

	"hubsync/functions/internal/clients"
	"hubsync/migrations"
	"hubsync/shared/cfnresource"
	"hubsync/shared/lambdahttp"
	"hubsync/shared/ops"
	"hubsync/shared/postgres"
)

// migrated says from which schema to which.
type migrated struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

func main() {
	s := clients.New()
	database := s.Reader.Database()
	// A broken configuration ends no init: doctor must be able to tell what is wrong.
	broken := s.Err()
	operators := ops.Open(context.Background(), ops.Environment{Getenv: os.Getenv, Secrets: s.Secrets(), Database: s.Database, Logger: s.Logger})
	migrate := func(ctx context.Context) (migrated, error) {
		if broken != nil {
			return migrated{}, broken
		}
		url, err := s.DirectURL(ctx, database)
		if err != nil {
			return migrated{}, err
		}
		from, to, err := postgres.Migrate(ctx, url)
		if err == nil {
			err = postgres.GrantRoles(ctx, url)
		}
		return migrated{from, to}, err
	}
	hashes, err := migrations.Hashes()
	if err != nil {
		s.Fatal(err)
	}
	schema := cfnresource.Resource{ID: "schema", Client: &http.Client{Timeout: answerTimeout}, Wait: wait, Apply: cfnresource.Schema(hashes, func(ctx context.Context) error {
		_, err := migrate(ctx)
		return err
	})}
	serve := func(ctx context.Context, r ops.Request) (any, error) {
		if r.Verb == "migrate" {
			return migrate(ctx)
		}
		operators.Thaw(time.Now())
		return operators.Serve(ctx, r), nil
	}
	s.Start(lambdahttp.Verb(cfnresource.Before(schema, serve), s.Logger))
}

// answerTimeout is for one try to tell CloudFormation; several fit into an invocation.
const answerTimeout = 3 * time.Second

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
