package intake

import "strings"

const keyHeader = "Idempotency-Key"

// idempotencyKey reads the key of a request. The quoted form of the IETF draft
// (a structured-field string) and the bare form that most clients send are one
// key. A bare comma is refused: gateways join two headers with one.
func idempotencyKey(headers []string) (string, *fieldError) {
	switch len(headers) {
	case 0:
		return "", keyError("required", "is missing; send a key that is unique to this decision")
	case 1:
	default:
		return "", keyError("duplicate", "is given more than once")
	}
	value := strings.Trim(headers[0], " \t")
	if value == "" {
		return "", keyError("required", "is empty")
	}
	var key string
	var valid bool
	if value[0] == '"' {
		key, valid = quotedKey(value)
	} else {
		key, valid = value, bareKey(value)
	}
	switch {
	case !valid:
		return "", keyError("invalid", "must be one quoted string, or visible ASCII characters without comma and quotes")
	case key == "":
		return "", keyError("required", "is empty")
	case len(key) > maxKey:
		return "", keyError("too_long", "is longer than 255 characters")
	}
	return key, nil
}

func keyError(code, detail string) *fieldError {
	return &fieldError{Field: keyHeader, Code: code, Detail: detail}
}

// quotedKey reads an sf-string (RFC 9651 §3.3.3) that fills the whole value.
func quotedKey(value string) (string, bool) {
	var key strings.Builder
	for i := 1; i < len(value); i++ {
		c := value[i]
		switch {
		case c == '"':
			return key.String(), i == len(value)-1
		case c == '\\':
			i++
			if i == len(value) || value[i] != '"' && value[i] != '\\' {
				return "", false
			}
			key.WriteByte(value[i])
		case c < ' ' || c > '~':
			return "", false
		default:
			key.WriteByte(c)
		}
	}
	return "", false
}

func bareKey(value string) bool {
	for i := range len(value) {
		if c := value[i]; c <= ' ' || c > '~' || c == '"' || c == ',' {
			return false
		}
	}
	return true
}
