package lambdatest

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	"github.com/google/uuid"
)

// maxPayload is Lambda's limit of a synchronous request or response.
const maxPayload = 6 << 20

// api serves the Runtime API, and as much of the Extensions API as the library uses to
// get a SIGTERM.
func (e *environment) api() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", e.next)
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/response", func(w http.ResponseWriter, r *http.Request) {
		e.take(w, r, func(body []byte) answer {
			if len(body) > maxPayload {
				return answer{err: &FunctionError{"Function.ResponseSizeTooLarge", "the response is larger than 6 MB"}}
			}
			return answer{payload: body}
		})
	})
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/error", func(w http.ResponseWriter, r *http.Request) {
		e.take(w, r, reported)
	})
	mux.HandleFunc("POST /2018-06-01/runtime/init/error", e.initError)
	mux.HandleFunc("POST /2020-01-01/extension/register", e.register)
	mux.HandleFunc("GET /2020-01-01/extension/event/next", func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done() // an extension without events waits here for ever
	})
	return mux
}

func (e *environment) next(w http.ResponseWriter, r *http.Request) {
	e.asked <- struct{}{}
	select {
	case inv := <-e.work:
		h := w.Header()
		h.Set("Lambda-Runtime-Aws-Request-Id", inv.id)
		h.Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(inv.deadline.UnixMilli(), 10))
		h.Set("Lambda-Runtime-Invoked-Function-Arn", inv.arn)
		h.Set("Lambda-Runtime-Trace-Id", "Root=1-00000000-000000000000000000000000;Sampled=0")
		h.Set("Content-Type", "application/json")
		_, _ = w.Write(inv.payload) // a process that is gone is seen by its exit
	case <-r.Context().Done():
	}
}

// take gives the invocation at work its answer. Another id is refused, as Lambda does.
func (e *environment) take(w http.ResponseWriter, r *http.Request, read func([]byte) answer) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxPayload+1))
	e.mu.Lock()
	inv := e.current
	e.mu.Unlock()
	if err != nil || inv == nil || inv.id != r.PathValue("id") {
		refuse(w)
		return
	}
	select {
	case inv.answered <- read(body):
		accept(w)
	default: // the second answer to one invocation
		refuse(w)
	}
}

// reported reads what the runtime says about a failure.
func reported(body []byte) answer {
	var said struct{ ErrorType, ErrorMessage string }
	if json.Unmarshal(body, &said) != nil || said.ErrorType == "" {
		return answer{err: &FunctionError{"Unknown", "the runtime reported an error without a type"}}
	}
	return answer{err: &FunctionError{said.ErrorType, said.ErrorMessage}}
}

func (e *environment) initError(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxPayload))
	if err != nil {
		refuse(w)
		return
	}
	select {
	case e.failed <- reported(body):
	default: // told already
	}
	accept(w)
}

func (e *environment) register(w http.ResponseWriter, _ *http.Request) {
	e.mu.Lock()
	e.extension = true
	e.mu.Unlock()
	w.Header().Set("Lambda-Extension-Identifier", uuid.NewString())
	write(w, http.StatusOK, map[string]string{"functionName": e.cfg.Name, "functionVersion": "1", "handler": "bootstrap"})
}

func accept(w http.ResponseWriter) { write(w, http.StatusAccepted, map[string]string{"status": "OK"}) }

func refuse(w http.ResponseWriter) {
	write(w, http.StatusBadRequest, map[string]string{"errorType": "InvalidRequestID", "errorMessage": "Invalid request ID"})
}

func write(w http.ResponseWriter, status int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		status, body = http.StatusInternalServerError, nil
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the caller is gone: nothing to tell it
}
