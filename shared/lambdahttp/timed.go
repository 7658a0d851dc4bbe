package lambdahttp

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/aws/aws-lambda-go/events"
)

// Timed returns a Lambda handler for a stage that a schedule starts: it runs until
// shortly before the invocation's deadline, and a panic becomes an error.
func Timed[R any](run func(context.Context) (R, error), logger *slog.Logger) func(context.Context) (R, error) {
	return func(ctx context.Context) (R, error) {
		return guarded(ctx, logger, run)
	}
}

// Verb returns a Lambda handler for something that is asked for by lambda:Invoke.
func Verb[Q, R any](serve func(context.Context, Q) (R, error), logger *slog.Logger) func(context.Context, Q) (R, error) {
	return func(ctx context.Context, request Q) (R, error) {
		return guarded(ctx, logger, func(ctx context.Context) (R, error) { return serve(ctx, request) })
	}
}

// Either returns a Lambda handler for a stage that a schedule starts and that is served
// over HTTP too: an event with an HTTP request goes to h, any other one starts run.
func Either[R any](h http.Handler, run func(context.Context) (R, error), logger *slog.Logger) func(context.Context, json.RawMessage) (any, error) {
	serve := Handler(h, logger)
	return func(ctx context.Context, raw json.RawMessage) (any, error) {
		var event events.APIGatewayV2HTTPRequest
		if json.Unmarshal(raw, &event) == nil && event.RequestContext.HTTP.Method != "" {
			return serve(ctx, event)
		}
		return guarded(ctx, logger, run)
	}
}

// guarded runs a stage with time left at the end, and turns a panic into an error.
func guarded[R any](ctx context.Context, logger *slog.Logger, run func(context.Context) (R, error)) (result R, err error) {
	ctx, cancel := withMargin(ctx)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			logger.Error("panic", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return run(ctx)
}
