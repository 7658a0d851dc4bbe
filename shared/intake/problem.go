package intake

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// problem is an RFC 9457 problem document.
type problem struct {
	Type   string       `json:"type"` // urn:hubsync:problem:<code>
	Title  string       `json:"title"`
	Status int          `json:"status"`
	Detail string       `json:"detail,omitempty"`
	Errors []fieldError `json:"errors,omitempty"`
}

// refusal makes the answer for a problem. code is stable and names the problem in
// its type and in the log.
func refusal(status int, code, title, detail string) answer {
	return answer{
		status:  status,
		outcome: code,
		body:    problem{Type: "urn:hubsync:problem:" + code, Title: title, Status: status, Detail: detail},
	}
}

// invalid lists everything that is wrong with a request, up to a limit.
func invalid(problems []fieldError) answer {
	detail := "Every problem is listed in errors."
	if len(problems) > maxFieldErrors {
		problems = problems[:maxFieldErrors]
		detail = "The first " + strconv.Itoa(maxFieldErrors) + " problems are listed in errors."
	}
	a := refusal(http.StatusBadRequest, "invalid-request", "The request is not valid", detail)
	p := a.body.(problem)
	p.Errors = problems
	a.body = p
	return a
}

func notFound(code, detail string) answer {
	return refusal(http.StatusNotFound, code, "Not found", detail)
}

func methodNotAllowed(allowed []string) answer {
	a := refusal(http.StatusMethodNotAllowed, "method-not-allowed", "The method is not allowed here", "")
	return a.with("Allow", strings.Join(allowed, ", "))
}

func tooLarge() answer {
	return refusal(http.StatusRequestEntityTooLarge, "too-large", "The body is too large",
		"A request may have up to 65,536 bytes.")
}

func gone() answer {
	return refusal(http.StatusGone, "contact-erased", "The contact was erased",
		"Nothing more is accepted or told about this contact.")
}

// retryLater is for what is nobody's fault and passes: the same request with the
// same key again will do.
func retryLater(status int, code, title string, wait time.Duration) answer {
	a := refusal(status, code, title, "Send the same request again, with the same Idempotency-Key.")
	return a.with("Retry-After", strconv.Itoa(int(wait/time.Second)))
}
