package hubspot

import (
	"fmt"
	"regexp"
	"strings"
)

// HubSpot's texts echo what they were sent, addresses included, and an address has
// many encodings. So nothing is removed from them: only what has the shape of a code,
// of an id or of a property's name is taken out of them, and the rest is dropped.

var (
	plainCode  = regexp.MustCompile(`^[A-Z][A-Z0-9_]{2,60}$`)
	uuidOrID   = regexp.MustCompile(`^(?:[0-9]{1,20}|[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12})$`)
	existingID = regexp.MustCompile(`Existing ID: (\d{1,20})\b`)
	// HubSpot's validation text embeds JSON with one of these.
	propertyCode = regexp.MustCompile(`"error"\s*:\s*"([A-Z][A-Z0-9_]{2,60})"`)
	propertyName = regexp.MustCompile(`"name"\s*:\s*"([a-z][a-z0-9_]{0,99})"`)
	// Codes that stand in a message without being marked as such.
	namedCode = regexp.MustCompile(`\b(PROPERTY_DOESNT_EXIST|INVALID_EMAIL|INVALID_OPTION|INVALID_DATE|INVALID_INTEGER|INVALID_LONG|` +
		`MISSING_REQUIRED_PROPERTY|MISSING_CONDITIONAL_REQUIRED_PROPERTY)\b`)
)

// plainWord keeps a code-like text and drops anything else.
func plainWord(text string) string {
	if plainCode.MatchString(text) {
		return text
	}
	return ""
}

// plainID keeps a UUID or a number: correlation ids, record ids, our trace ids.
func plainID(text string) string {
	if uuidOrID.MatchString(text) {
		return text
	}
	return ""
}

func plainIDs(list []string) []string {
	var kept []string
	for _, text := range list {
		if plainID(text) != "" {
			kept = append(kept, text)
		}
	}
	return kept
}

// firstMatch returns the first group of the first message that matches.
func firstMatch(pattern *regexp.Regexp, messages []string) string {
	for _, message := range messages {
		if m := pattern.FindStringSubmatch(message); m != nil {
			return m[1]
		}
	}
	return ""
}

// pathSegment percent-encodes everything but unreserved characters: addresses stand in
// paths, and + or % in them must arrive as they are. A segment of dots only would be
// taken for a way up.
func pathSegment(text string) string {
	const unreserved = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
	dotsOnly := strings.Trim(text, ".") == ""
	var b strings.Builder
	for i := range len(text) {
		if !dotsOnly && strings.IndexByte(unreserved, text[i]) >= 0 {
			b.WriteByte(text[i])
			continue
		}
		fmt.Fprintf(&b, "%%%02X", text[i])
	}
	return b.String()
}

// foldEmail lower-cases ASCII only, as HubSpot's addresses are compared everywhere in
// this project: folding Unicode would take two people for one.
func foldEmail(text string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, text)
}
