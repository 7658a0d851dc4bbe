// Package cfnresource answers CloudFormation as a custom resource does: a function is
// handed what happens to the resource, and whatever comes of it is put to a signed URL.
// Without an answer a stack waits for an hour, so there is always one.
package cfnresource

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// RequestType is what happens to the resource.
type RequestType string

// The request types of CloudFormation.
const (
	Create RequestType = "Create"
	Update RequestType = "Update"
	Delete RequestType = "Delete"
)

// Request is CloudFormation's event.
type Request struct {
	RequestType           RequestType
	ResponseURL           string
	StackID               string `json:"StackId"`
	RequestID             string `json:"RequestId"`
	LogicalResourceID     string `json:"LogicalResourceId"`
	PhysicalResourceID    string `json:"PhysicalResourceId"` // empty at Create
	ResourceProperties    map[string]any
	OldResourceProperties map[string]any // of an Update
}

// Decode reads an event; ok is false where it is none of CloudFormation's.
func Decode(raw []byte) (r Request, ok bool) {
	if json.Unmarshal(raw, &r) != nil || r.ResponseURL == "" || r.StackID == "" || r.RequestID == "" {
		return Request{}, false
	}
	return r, r.RequestType == Create || r.RequestType == Update || r.RequestType == Delete
}

// response is the document that CloudFormation waits for.
type response struct {
	Status             string
	Reason             string `json:",omitempty"`
	PhysicalResourceID string `json:"PhysicalResourceId"`
	StackID            string `json:"StackId"`
	RequestID          string `json:"RequestId"`
	LogicalResourceID  string `json:"LogicalResourceId"`
}

const (
	answerReserve = 15 * time.Second // of an invocation, for the answer
	answerTries   = 4
	maxReason     = 1000 // characters; CloudFormation takes 4 KB in all
)

// Resource is a custom resource that is served by Apply.
type Resource struct {
	// ID is the resource's physical id. It never changes: another one would make
	// CloudFormation delete the old resource.
	ID string
	// Apply does what the request asks for. Its error's text is shown in the stack's events.
	Apply  func(context.Context, Request) error
	Client *http.Client
	// Wait is called between two tries to answer, with how long to wait.
	Wait func(context.Context, time.Duration)
}

// Serve runs Apply in the time that the invocation leaves for it, and answers. Its error
// says that no answer could be given.
func (s Resource) Serve(ctx context.Context, r Request) error {
	failure := s.apply(ctx, r)
	answer := response{Status: "SUCCESS", PhysicalResourceID: r.PhysicalResourceID, StackID: r.StackID, RequestID: r.RequestID, LogicalResourceID: r.LogicalResourceID}
	if answer.PhysicalResourceID == "" {
		answer.PhysicalResourceID = s.ID
	}
	if failure != nil {
		answer.Status, answer.Reason = "FAILED", clip(failure.Error())
	}
	body, err := json.Marshal(answer)
	if err != nil {
		return fmt.Errorf("answer CloudFormation: %w", err)
	}
	for try := range answerTries {
		if try > 0 {
			s.Wait(ctx, time.Second<<try)
		}
		if err = s.put(ctx, r.ResponseURL, body); err == nil {
			break
		}
	}
	return err
}

// apply turns a panic into an error: the stack must hear of it.
func (s Resource) apply(ctx context.Context, r Request) (err error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-answerReserve))
		defer cancel()
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return s.Apply(ctx, r)
}

// put sends the answer. The URL is a bearer of rights, so no error shows it; and it was
// signed without a content type, so none is sent.
func (s Resource) put(ctx context.Context, target string, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, target, bytes.NewReader(body))
	if err != nil {
		return errors.New("answer CloudFormation: its URL cannot be read")
	}
	answer, err := s.Client.Do(request)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return fmt.Errorf("answer CloudFormation: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()                      // read to its end below
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10)) // so that the connection can be used again
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("answer CloudFormation: it says %d", answer.StatusCode)
	}
	return nil
}

func clip(text string) string {
	if runes := []rune(text); len(runes) > maxReason {
		return string(runes[:maxReason]) + "…"
	}
	return text
}

// Before returns a handler of raw events that serves CloudFormation's with the resource,
// and hands every other one to next.
func Before[Q, R any](s Resource, next func(context.Context, Q) (R, error)) func(context.Context, json.RawMessage) (any, error) {
	return func(ctx context.Context, raw json.RawMessage) (any, error) {
		if r, ok := Decode(raw); ok {
			return struct{}{}, s.Serve(ctx, r)
		}
		var q Q
		if err := json.Unmarshal(raw, &q); err != nil {
			return nil, fmt.Errorf("the request cannot be read: %w", err)
		}
		return next(ctx, q)
	}
}
