// Command reconcile is the function that a schedule starts every minute, and that an
// operator may ask over HTTP: it finds what is stuck.
package main

import (
	"context"
	"time"

	"github.com/aws/aws-lambda-go/lambda"

	"hubsync/functions/internal/clients"
	"hubsync/shared/lambdahttp"
	"hubsync/shared/reconcile"
)

func main() {
	s := clients.New()
	database := s.Reader.Database()
	cronSecret := s.Secret("CRON_SECRET", true)
	if err := s.Err(); err != nil {
		s.Fatal(err)
	}
	db, err := s.Database(context.Background(), database)
	if err != nil {
		s.Fatal(err)
	}
	r, err := reconcile.New(reconcile.Config{DB: db, Clock: time.Now, Logger: s.Logger})
	if err != nil {
		s.Fatal(err)
	}
	lambda.Start(lambdahttp.Either(db.Thawed(r.Handler(cronSecret.Get)), func(ctx context.Context) (reconcile.Result, error) {
		db.Thaw(time.Now())
		return r.Run(ctx)
	}, s.Logger))
}
