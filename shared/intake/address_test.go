package intake

import (
	"errors"
	"strings"
	"testing"

	"hubsync/shared/casetest"
)

func TestParseAddress(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 64)
	longest := long + "@" + strings.Repeat("b", 63) + "." + strings.Repeat("c", 63) + "." + strings.Repeat("d", 57) + ".org"
	rows := []struct{ name, text, key, code string }{
		{"plain", "ann@example.com", "ann@example.com", ""},
		{"upper case", "Ann.Bo@Example.COM", "ann.bo@example.com", ""},
		{"plus", "ann+news@example.org", "ann+news@example.org", ""},
		{"apostrophe", "o'hara@example.org", "o'hara@example.org", ""},
		{"percent", "perc%ent@example.com", "perc%ent@example.com", ""},
		{"every special character", "!#$%&'*+-/=?^_`{|}~@example.net", "!#$%&'*+-/=?^_`{|}~@example.net", ""},
		{"dash at the edge of the local part", "-ann-@example.com", "-ann-@example.com", ""},
		{"digits", "123@example.com", "123@example.com", ""},
		{"one character", "a@b.org", "a@b.org", ""},
		{"sub-domains", "ann@a.b.c.example.com", "ann@a.b.c.example.com", ""},
		{"digits in the host", "ann@123.example.com", "ann@123.example.com", ""},
		{"dashes in the host", "ann@my-own--host.example.com", "ann@my-own--host.example.com", ""},
		{"spaces around", "  ann@example.com\t", "ann@example.com", ""},
		{"line end", "ann@example.com\r\n", "ann@example.com", ""},
		{"no-break space around", "\u00a0ann@example.com\u00a0", "ann@example.com", ""},
		{"em space around", "\u2003ann@example.com", "ann@example.com", ""},
		{"ideographic space around", "\u3000ann@example.com\u3000", "ann@example.com", ""},
		{"next line around", "ann@example.com\u0085", "ann@example.com", ""},
		{"IDN", "ann@bücher.example.com", "ann@xn--bcher-kva.example.com", ""},
		{"IDN upper case", "ann@BÜCHER.example.com", "ann@xn--bcher-kva.example.com", ""},
		{"IDN decomposed", "ann@bu\u0308cher.example.com", "ann@xn--bcher-kva.example.com", ""},
		{"IDN in ACE", "ann@xn--bcher-kva.example.com", "ann@xn--bcher-kva.example.com", ""},
		{"IDN in upper ACE", "ann@XN--BCHER-KVA.example.com", "ann@xn--bcher-kva.example.com", ""},
		{"sharp s stays", "ann@straße.example.com", "ann@xn--strae-oqa.example.com", ""},
		{"full width host", "ann@ｅｘａｍｐｌｅ.com", "ann@example.com", ""},
		{"ideographic dot", "ann@example。com", "ann@example.com", ""},
		{"Kelvin sign in the host", "ann@\u212aiosk.example.com", "ann@kiosk.example.com", ""},
		{"local part of 64", long + "@example.com", long + "@example.com", ""},
		{"254 bytes", longest, longest, ""},

		{"empty", "", "", "required"},
		{"only spaces", " \t\u00a0", "", "required"},
		{"local part of 65", long + "a@example.com", "", "too_long"},
		{"255 bytes", "a" + longest, "", "too_long"},
		{"254 bytes, host grows", long + "@" + strings.Repeat("ü.", 28) + "org", "", "too_long"},
		{"no at", "not-an-address", "", "invalid_address"},
		{"two ats", "two@@example.com", "", "invalid_address"},
		{"two ats apart", "a@b@example.com", "", "invalid_address"},
		{"full width at", "ann＠example.com", "", "invalid_address"},
		{"no local part", "@example.com", "", "invalid_address"},
		{"no host", "ann@", "", "invalid_address"},
		{"only an at", "@", "", "invalid_address"},
		{"host without a dot", "ann@localhost", "", "invalid_address"},
		{"space inside", "sp ace@example.com", "", "invalid_address"},
		{"space before the at", "ann @example.com", "", "invalid_address"},
		{"space after the at", "ann@ example.com", "", "invalid_address"},
		{"no-break space inside", "an\u00a0n@example.com", "", "invalid_address"},
		{"tab inside", "an\tn@example.com", "", "control_character"},
		{"line end inside", "ann@example.com\nbcc: bo@example.com", "", "control_character"},
		{"NUL", "ann\x00@example.com", "", "control_character"},
		{"DEL", "ann\x7f@example.com", "", "control_character"},
		{"C1 control", "ann\u0081@example.com", "", "control_character"},
		{"display name", "Ann <ann@example.com>", "", "invalid_address"},
		{"angle brackets", "<ann@example.com>", "", "invalid_address"},
		{"comment", "ann(work)@example.com", "", "invalid_address"},
		{"comment in the host", "ann@(work)example.com", "", "invalid_address"},
		{"quoted", `"ann"@example.com`, "", "invalid_address"},
		{"quoted with a space", `"an n"@example.com`, "", "invalid_address"},
		{"quoted at", `"a@b"@example.com`, "", "invalid_address"},
		{"backslash", `an\n@example.com`, "", "invalid_address"},
		{"comma", "ann,bo@example.com", "", "invalid_address"},
		{"semicolon list", "ann@example.com;bo@example.com", "", "invalid_address"},
		{"comma list", "ann@example.com, bo@example.com", "", "invalid_address"},
		{"mailto", "mailto:ann@example.com", "", "invalid_address"},
		{"colon", "a:b@example.com", "", "invalid_address"},
		{"square brackets", "a[b]@example.com", "", "invalid_address"},
		{"dot first", ".ann@example.com", "", "invalid_address"},
		{"dot last", "ann.@example.com", "", "invalid_address"},
		{"two dots", "an..n@example.com", "", "invalid_address"},
		{"only a dot", ".@example.com", "", "invalid_address"},
		{"IPv4 literal", "ann@[192.0.2.1]", "", "invalid_address"},
		{"IPv6 literal", "ann@[IPv6:2001:db8::1]", "", "invalid_address"},
		{"bare IPv4", "ann@192.0.2.1", "", "invalid_address"},
		{"numeric top level", "ann@example.123", "", "invalid_address"},
		{"trailing dot", "ann@example.com.", "", "invalid_address"},
		{"leading dot in the host", "ann@.example.com", "", "invalid_address"},
		{"two dots in the host", "ann@example..com", "", "invalid_address"},
		{"dash first in a label", "ann@-example.com", "", "invalid_address"},
		{"dash last in a label", "ann@example-.com", "", "invalid_address"},
		{"underscore in the host", "ann@ex_ample.com", "", "invalid_address"},
		{"slash in the host", "ann@example.com/x", "", "invalid_address"},
		{"port", "ann@example.com:25", "", "invalid_address"},
		{"percent in the host", "ann@exa%6dple.com", "", "invalid_address"},
		{"label of 64", "ann@" + long + ".com", "", "invalid_address"},
		{"broken ACE", "ann@xn--a-ä.example.com", "", "invalid_address"},
		{"ACE of nothing", "ann@xn--.example.com", "", "invalid_address"},
		{"not Unicode", "ann\xff@example.com", "", "invalid_unicode"},
		{"half a rune", "ann\xc3@example.com", "", "invalid_unicode"},
		{"encoded surrogate", "ann\xed\xa0\x80@example.com", "", "invalid_unicode"},
		{"letters beyond ASCII", "jörg@example.com", "", "invalid_address"},
		{"Kelvin sign in the local part", "\u212aim@example.com", "", "invalid_address"},
		{"Cyrillic a", "\u0430nn@example.com", "", "invalid_address"},
		{"emoji", "ann😀@example.com", "", "invalid_address"},
		{"emoji in the host", "ann@😀.example.com\u200d", "", "invalid_address"},
		{"zero-width space at the edge", "\u200bann@example.com", "", "invalid_address"},
		{"zero-width space in the host", "ann@exam\u200bple.com", "", "invalid_address"},
		{"zero-width joiner", "an\u200dn@example.com", "", "invalid_address"},
		{"byte order mark at the edge", "\ufeffann@example.com", "", "invalid_address"},
		{"soft hyphen in the host", "ann@exam\u00adple.com", "", "invalid_address"},
		{"right-to-left override", "\u202eann@example.com", "", "invalid_address"},
		{"variation selector in the host", "ann@example\ufe0f.com", "", "invalid_address"},
		{"Hangul filler in the host", "ann@ex\u3164ample.com", "", "invalid_address"},
		{"grapheme joiner in the host", "ann@ex\u034fample.com", "", "invalid_address"},
		{"private use", "ann@ex\ue000ample.com", "", "invalid_address"},
		{"no character", "ann@ex\uffffample.com", "", "invalid_address"},
	}
	for _, row := range rows {
		casetest.Add()
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			address, err := ParseAddress(row.text, false)
			if code := addressCode(err); code != row.code || address.Key != row.key {
				t.Errorf("ParseAddress(%q) = key %q, code %q; want key %q, code %q", row.text, address.Key, code, row.key, row.code)
			}
			if row.code == "" && address.Given != strings.TrimSpace(row.text) {
				t.Errorf("Given %q is not the text as given", address.Given)
			}
		})
	}
	t.Logf("%d addresses", len(rows))
}

func addressCode(err error) string {
	var problem *AddressError
	if errors.As(err, &problem) {
		return problem.Code
	}
	return ""
}

func TestParseAddressTakesALongLocalPartForAnOptOut(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("a", 65) + "@example.com"
	if _, err := ParseAddress(text, false); addressCode(err) != "too_long" {
		t.Errorf("a subscribe was not refused: %v", err)
	}
	if address, err := ParseAddress(text, true); err != nil || address.Key != text {
		t.Errorf("an opt-out was refused: %v", err)
	}
	if _, err := ParseAddress(strings.Repeat("a", 243)+"@example.com", true); addressCode(err) != "too_long" {
		t.Errorf("an opt-out of 255 bytes was not refused: %v", err)
	}
}

func TestAddressErrorsNeverQuoteTheAddress(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"canary@@example.com", "canary@localhost", "canary @example.com", "canary@xn--a-ä.example.com"} {
		casetest.Add()
		if _, err := ParseAddress(text, false); err == nil || strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), "example") {
			t.Errorf("error %v", err)
		}
	}
}

// An address that was accepted is a fixed point: its key is an address with the
// same key, so that nobody becomes two people by passing through twice.
func FuzzParseAddress(f *testing.F) {
	for _, seed := range []string{
		"Ann.Bo+x@Example.com", "ann@bücher.example.com", "ann@XN--BCHER-KVA.example.com", "ann@example。com",
		"\u200bann@example.com", `"ann"@example.com`, "ann@straße.example.com", "a@b", "ann@\u212aiosk.example.org",
	} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, text string, forOptOut bool) {
		address, err := ParseAddress(text, forOptOut)
		if err != nil {
			if address != (Address{}) {
				t.Fatal("an error came with an address")
			}
			return
		}
		if !isASCII(address.Key) || strings.Count(address.Key, "@") != 1 || len(address.Key) > MaxAddress || address.Key != lowerASCII(address.Key) {
			t.Fatalf("key %q", address.Key)
		}
		again, err := ParseAddress(address.Key, forOptOut)
		if err != nil || again.Key != address.Key {
			t.Fatalf("key %q becomes %q, %v", address.Key, again.Key, err)
		}
	})
}
