// Command admin is the function inside the VPC that serves operators and deployments by
// lambda:Invoke: IAM says who may do what. {"verb":"migrate"} brings the database to the
// newest schema; it connects to the database itself, not through the proxy.
package main

import (
	"context"
	"fmt"

	"hubsync/functions/internal/clients"
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
	serve := func(ctx context.Context, r request) (response, error) {
		if r.Verb != "migrate" {
			return response{}, fmt.Errorf("verb %q is not one of: migrate", r.Verb)
		}
		url, err := s.DirectURL(ctx, database)
		if err != nil {
			return response{}, err
		}
		from, to, err := postgres.Migrate(ctx, url)
		return response{from, to}, err
	}
	s.Start(lambdahttp.Verb(serve, s.Logger))
}
