// Command admin is the function inside the VPC that serves operators and deployments by
// lambda:Invoke: IAM says who may do what. {"verb":"migrate"} brings the database to the
// newest schema, and so does CloudFormation, which asks as for a custom resource; it
// connects to the database itself, not through the proxy.
package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"hubsync/functions/internal/clients"
	"hubsync/migrations"
	"hubsync/shared/cfnresource"
	"hubsync/shared/lambdahttp"
	"hubsync/shared/postgres"
)

// request is what an operator or a deployment asks for.
type request struct {
	Verb string `json:"verb"`
}

// response says what was done.
type response struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

func main() {
	s := clients.New()
	database := s.Reader.Database()
	if err := s.Err(); err != nil {
		s.Fatal(err)
	}
	migrate := func(ctx context.Context) (response, error) {
		url, err := s.DirectURL(ctx, database)
		if err != nil {
			return response{}, err
		}
		from, to, err := postgres.Migrate(ctx, url)
		if err == nil {
			err = postgres.GrantRoles(ctx, url)
		}
		return response{from, to}, err
	}
	hashes, err := migrations.Hashes()
	if err != nil {
		s.Fatal(err)
	}
	schema := cfnresource.Resource{ID: "schema", Client: &http.Client{Timeout: answerTimeout}, Wait: wait, Apply: cfnresource.Schema(hashes, func(ctx context.Context) error {
		_, err := migrate(ctx)
		return err
	})}
	serve := func(ctx context.Context, r request) (response, error) {
		if r.Verb != "migrate" {
			return response{}, fmt.Errorf("verb %q is not one of: migrate", r.Verb)
		}
		return migrate(ctx)
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
