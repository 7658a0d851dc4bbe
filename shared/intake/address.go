package intake

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// Limits of an address, in bytes (RFC 5321 §4.5.3.1).
const (
	MaxAddress = 254
	maxLocal   = 64
	maxLabel   = 63
)

// Address is an e-mail address: as the caller gave it, trimmed, and the key under
// which it is one identity (ASCII lower case, host in its ACE form).
type Address struct {
	Given, Key string
}

// AddressError says why a text is no address. It never quotes the text.
type AddressError struct {
	Code   string // required, too_long, invalid_unicode, control_character, invalid_address
	Detail string
}

func (e *AddressError) Error() string { return "address: " + e.Detail }

// hosts maps a host to its ACE form as a resolver would (UTS 46, not transitional).
var hosts = idna.New(idna.MapForLookup(), idna.Transitional(false), idna.StrictDomainName(true),
	idna.BidiRule(), idna.CheckJoiners(true))

// ParseAddress is the only place that decides what an address is and which ones
// are the same. Accepted is a plain dot-atom@host.tld: no display name, comment,
// quotes, address literal or trailing dot, and an ASCII local part; the host may
// be an IDN. An opt-out may have a local part longer than 64 bytes: HubSpot may
// hold such an address, and the person's wish must reach it.
func ParseAddress(text string, forOptOut bool) (Address, error) {
	if !utf8.ValidString(text) {
		return Address{}, &AddressError{"invalid_unicode", "is not valid Unicode text"}
	}
	given := strings.TrimFunc(text, unicode.IsSpace)
	if given == "" {
		return Address{}, &AddressError{"required", "is empty"}
	}
	if len(given) > MaxAddress {
		return Address{}, &AddressError{"too_long", "is longer than 254 bytes"}
	}
	for _, r := range given {
		if problem := forbiddenRune(r); problem != nil {
			return Address{}, problem
		}
	}
	local, host, found := strings.Cut(given, "@")
	if !found || strings.Contains(host, "@") {
		return Address{}, invalidAddress("needs exactly one @")
	}
	if problem := checkLocal(local, forOptOut); problem != nil {
		return Address{}, problem
	}
	ace, problem := aceHost(host)
	if problem != nil {
		return Address{}, problem
	}
	key := lowerASCII(local) + "@" + ace
	if len(key) > MaxAddress {
		return Address{}, &AddressError{"too_long", "is longer than 254 bytes when its host is encoded"}
	}
	return Address{Given: given, Key: key}, nil
}

func invalidAddress(detail string) *AddressError { return &AddressError{"invalid_address", detail} }

// forbiddenRune names characters that no part may hold: what cannot be seen would
// make two addresses that look the same, and IDNA drops some of it silently.
func forbiddenRune(r rune) *AddressError {
	switch {
	case unicode.IsControl(r):
		return &AddressError{"control_character", "holds a control character"}
	case unicode.IsSpace(r):
		return invalidAddress("holds a space")
	case unicode.In(r, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point):
		return invalidAddress("holds an invisible character")
	case unicode.In(r, unicode.Co, unicode.Noncharacter_Code_Point):
		return invalidAddress("holds a character that has no meaning")
	}
	return nil
}

// checkLocal checks for a dot-atom (RFC 5322 §3.2.3).
func checkLocal(local string, forOptOut bool) *AddressError {
	if local == "" {
		return invalidAddress("has nothing before the @")
	}
	if len(local) > maxLocal && !forOptOut {
		return &AddressError{"too_long", "has more than 64 bytes before the @"}
	}
	if local[0] == '.' || local[len(local)-1] == '.' || strings.Contains(local, "..") {
		return invalidAddress("has a dot at the edge, or two in a row, before the @")
	}
	for i := range len(local) {
		if c := local[i]; c >= utf8.RuneSelf || !isAlphanumeric(c) && !strings.ContainsRune("!#$%&'*+-/=?^_`{|}~.", rune(c)) {
			return invalidAddress("has a character before the @ that is not allowed there")
		}
	}
	return nil
}

// aceHost checks a host name and returns it in lower-case ACE form.
func aceHost(host string) (string, *AddressError) {
	ace := lowerASCII(host)
	if !isASCII(host) || strings.Contains(ace, "xn--") {
		var err error
		if ace, err = hosts.ToASCII(host); err != nil {
			return "", invalidAddress("has a host that is no valid international domain name")
		}
		ace = lowerASCII(ace)
	}
	labels := strings.Split(ace, ".")
	if len(labels) < 2 {
		return "", invalidAddress("has a host without a dot")
	}
	for _, label := range labels {
		if !isHostLabel(label) {
			return "", invalidAddress("has a host that is no domain name")
		}
	}
	if top := labels[len(labels)-1]; strings.Trim(top, "0123456789") == "" {
		return "", invalidAddress("has a number where the top-level domain belongs")
	}
	return ace, nil
}

func isHostLabel(label string) bool {
	if label == "" || len(label) > maxLabel || label[0] == '-' || label[len(label)-1] == '-' {
		return false
	}
	for i := range len(label) {
		if c := label[i]; !isAlphanumeric(c) && c != '-' {
			return false
		}
	}
	return true
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// lowerASCII lower-cases A to Z only: strings.ToLower would turn U+212A into k.
func lowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + ('a' - 'A')
		}
		return r
	}, s)
}
