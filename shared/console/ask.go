package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"

	json "github.com/go-json-experiment/json"

	"hubsync/shared/ops"
)

// ask runs a verb and reads its answer.
func ask[R any](ctx context.Context, c *Console, verb string, args any) (R, error) {
	var result R
	text, err := json.Marshal(args)
	if err != nil {
		return result, fmt.Errorf("%s: write the arguments: %w", verb, err)
	}
	response := c.cfg.Serve(ctx, ops.Request{Verb: verb, Args: text, By: c.cfg.By})
	if response.Error != "" {
		return result, errors.New(response.Error)
	}
	if err := json.Unmarshal(response.Result, &result); err != nil {
		return result, fmt.Errorf("%s: the answer cannot be read: is the stack of another version? %w", verb, err)
	}
	return result, nil
}

// page is what every page knows.
type page struct {
	Title, What, Token string
	Problem            string
	Content            any
}

// render writes a page. A failure of its verb stands in it, under the status 502.
func (c *Console) render(w http.ResponseWriter, name, title string, content any, problem error) {
	p := page{Title: title, What: c.cfg.What, Token: c.token, Content: content}
	status := http.StatusOK
	if problem != nil {
		p.Problem, status = problem.Error(), http.StatusBadGateway
	}
	var b bytes.Buffer
	if err := c.pages.ExecuteTemplate(&b, name, p); err != nil {
		http.Error(w, "the page could not be made", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // a browser that is gone needs no page
}
