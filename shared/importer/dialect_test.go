package importer

import (
	"encoding/csv"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"hubsync/shared/casetest"
)

const goodHeader = "contactKey,email,productId,desiredState,occurredAt\n"

func encodeUTF16(text string, mark bool, big bool) string {
	units := utf16.Encode([]rune(text))
	if mark {
		units = append([]uint16{0xfeff}, units...)
	}
	var out []byte
	for _, u := range units {
		if big {
			out = append(out, byte(u>>8), byte(u))
		} else {
			out = append(out, byte(u), byte(u>>8))
		}
	}
	return string(out)
}

// TestHostileFilesAreRefusedBeforeTheFirstRow: nothing is stored, the reason is told, and
// no error repeats what stands in the file.
func TestHostileFilesAreRefusedBeforeTheFirstRow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	row := "c1,secret.person@example.com,newsletter,unsubscribed,\n"
	good := goodHeader + row
	cases := []struct{ name, file, content, reason string }{
		{"empty", "f.csv", "", "empty"},
		{"only a mark", "f.csv", "\xef\xbb\xbf", "empty"},
		{"blank lines", "f.csv", "\n\r\n\n", "empty"},
		{"CR only", "f.csv", strings.ReplaceAll(good, "\n", "\r"), "carriage return alone"},
		{"CR only, long", "f.csv", strings.ReplaceAll(goodHeader+strings.Repeat(row, 4000), "\n", "\r"), "carriage return alone"},
		{"a CR inside", "f.csv", goodHeader + "c1\rc2,secret.person@example.com,newsletter,unsubscribed,\n", "line 2: ends in a carriage return"},
		{"a CR at the end", "f.csv", strings.TrimSuffix(good, "\n") + "\r", "carriage return alone"},
		{"semicolons", "f.csv", strings.ReplaceAll(good, ",", ";"), "a comma"},
		{"tabs", "f.csv", strings.ReplaceAll(good, ",", "\t"), "a comma"},
		{"UTF-16 LE", "f.csv", encodeUTF16(good, true, false), "UTF-16"},
		{"UTF-16 BE", "f.csv", encodeUTF16(good, true, true), "UTF-16"},
		{"UTF-16 without a mark", "f.csv", encodeUTF16(good, false, false), "UTF-16"},
		{"UTF-16 NDJSON", "f.ndjson", encodeUTF16("{}\n", false, true), "UTF-16"},
		{"Latin-1", "f.csv", good + "M\xfcller,secret.person@example.com,newsletter,unsubscribed,\n", "line 3: is not UTF-8"},
		{"Latin-1 NDJSON", "f.ndjson", "{\"contactKey\":\"M\xfcller\"}\n", "line 1: is not UTF-8"},
		{"gzip", "f.csv", "\x1f\x8b\x08\x00secret.person@example.com", "gzip"},
		{"xlsx", "f.csv", "PK\x03\x04secret.person@example.com", "spreadsheet"},
		{"NUL", "f.csv", goodHeader + "c\x00,secret.person@example.com,newsletter,unsubscribed,\n", "NUL"},
		{"no header", "f.csv", row + row, "column 1 is not known"},
		{"header of another case", "f.csv", strings.Replace(good, "email", "Email", 1), "names are exact: email"},
		{"header with snake case", "f.csv", strings.Replace(good, "contactKey", "contact_key", 1), "names are exact: contactKey"},
		{"unknown column", "f.csv", strings.Replace(good, "occurredAt", "firstName", 1), "column 5 is not known"},
		{"a column twice", "f.csv", strings.Replace(good, "occurredAt", "email", 1), "has the column email twice"},
		{"doubled header", "f.csv", goodHeader + good, "line 2: repeats the header"},
		{"joined files", "f.csv", good + good, "line 3: repeats the header"},
		{"no e-mail column", "f.csv", "contactKey,productId,desiredState\nc1,newsletter,unsubscribed\n", "no column email"},
		{"no product", "f.csv", "contactKey,email,desiredState\nc1,secret.person@example.com,unsubscribed\n", "--product"},
		{"brand twice", "f.csv", "brandId," + goodHeader + "acme," + row, "leave --brand out"},
		{"one field less", "f.csv", good + "c2,secret.person@example.com,newsletter,unsubscribed\n", "line 3: has 4 fields, the header has 5"},
		{"one field more", "f.csv", good + "c2,secret.person@example.com,newsletter,unsubscribed,,\n", "line 3: has 6 fields"},
		{"a quote inside", "f.csv", good + `c"2,secret.person@example.com,newsletter,unsubscribed,"` + "\n", "quote inside"},
		{"text behind a quote", "f.csv", good + `"c"2,secret.person@example.com,newsletter,unsubscribed,` + "\n", "behind a closing quote"},
		{"a quote that stays open", "f.csv", good + `"c2,secret.person@example.com,newsletter,unsubscribed,` + "\n" + row, "never closed"},
		{"an open quote before much", "f.csv", good + `"` + strings.Repeat(row, 5000), "line 3: is longer than 64 KiB, or opens a quote"},
		{"a line of 70 KB", "f.csv", good + strings.Repeat("x", 70_000) + "," + row, "line 3: is longer than 64 KiB"},
		{"a line of 70 KB, NDJSON", "f.ndjson", `{"contactKey":"` + strings.Repeat("x", 70_000) + "\"}\n", "line 1: is longer than 64 KiB"},
		{"a line of 70 KB without an end", "f.ndjson", strings.Repeat("x", 70_000), "line 1: is longer than 64 KiB"},
		{"a name that says nothing", "f.txt", good, "--format"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			casetest.Add()
			w := &world{t: t, pool: w.pool, db: w.db, folder: t.TempDir()}
			brand := "acme"
			_, err := Run(t.Context(), Options{Path: w.file(c.file, c.content), BrandID: brand, DB: w.db, NewID: newID})
			var usage *UsageError
			if !errors.As(err, &usage) || !strings.Contains(err.Error(), c.reason) {
				t.Fatalf("got %v, want a refusal with %q", err, c.reason)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error repeats the file: %v", err)
			}
			w.mustBeEmpty()
		})
	}
}

// TestFilesOfTheDialect: what is allowed, and how each row ends.
func TestFilesOfTheDialect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const dated = ",2026-02-01T09:30:00Z\n"
	cases := []struct {
		name, file, content string
		options             Options
		want                []string // row,line,outcome,,code of each row
	}{
		{"plain", "f.csv", goodHeader + "c1,ann@example.com,newsletter,subscribed" + dated, Options{BrandID: "acme"}, []string{"1,2,accepted,"}},
		{"byte order mark, CRLF", "f.csv", "\xef\xbb\xbf" + strings.ReplaceAll(goodHeader+"c1,ann2@example.com,newsletter,subscribed"+dated, "\n", "\r\n"), Options{BrandID: "acme"}, []string{"1,2,accepted,"}},
		{"no end of the last line, blank lines", "f.csv", goodHeader + "\n\r\nc1,ann3@example.com,newsletter,unsubscribed,", Options{BrandID: "acme"}, []string{"1,4,accepted,"}},
		{"quoted newlines and quotes", "f.csv", "email,explanation,contactKey,desiredState\nbea@example.com,\"first\nsecond, \"\"third\"\"\r\n\",b1,unsubscribed\ncai@example.com,,b2,unsubscribed\n",
			Options{BrandID: "acme", ProductID: "events"}, []string{"1,2,accepted,", "2,5,accepted,"}},
		{"only a header", "f.csv", goodHeader, Options{BrandID: "acme"}, nil},
		{"formulas are text", "f.csv", goodHeader + "=1+1,dan@example.com,newsletter,unsubscribed,\n@SUM(A1),-2+3@example.com,newsletter,unsubscribed,\n=cmd,=HYPERLINK(1),newsletter,unsubscribed,\n",
			Options{BrandID: "acme"}, []string{"1,2,accepted,", "2,3,accepted,", "3,4,refused,invalid_address"}},
		{"states are exact", "f.csv", goodHeader + "c4,eve@example.com,newsletter,Subscribed" + dated + "c4,eve@example.com,newsletter,," + "\nc4,eve@example.com,newsletter,1" + dated + "c4,eve@example.com,newsletter, unsubscribed,\n",
			Options{BrandID: "acme"}, []string{"1,2,refused,not_allowed", "2,3,refused,required", "3,4,refused,not_allowed", "4,5,refused,not_allowed"}},
		{"a subscribed row needs a date", "f.csv", goodHeader + "c5,fay@example.com,newsletter,subscribed,\nc5,fay@example.com,newsletter,unsubscribed,\nc5,fay@example.com,newsletter,subscribed,yesterday\n",
			Options{BrandID: "acme"}, []string{"1,2,refused,required", "2,3,accepted,", "3,4,refused,invalid_time"}},
		{"a date for all", "f.csv", goodHeader + "c6,gil@example.com,newsletter,subscribed,\n", Options{BrandID: "acme", ConsentDate: "2026-01-31"}, []string{"1,2,accepted,"}},
		{"of one day the opt-out stands", "f.csv", goodHeader + "c7,hal@example.com,newsletter,unsubscribed,2026-01-31\nc7,hal@example.com,newsletter,subscribed,2026-01-31\nc7,hal@example.com,newsletter,subscribed,2026-02-01\n",
			Options{BrandID: "acme"}, []string{"1,2,accepted,", "2,3,superseded,", "3,4,accepted,"}},
		{"every row its own brand", "f.csv", "brandId," + goodHeader + "acme,c8,ida@example.com,events,unsubscribed,\nother,c8,ida@example.com,newsletter,unsubscribed,\nother,c8,ida@example.com,events,unsubscribed,\nnone,c8,ida@example.com,events,unsubscribed,\n",
			Options{}, []string{"1,2,accepted,", "2,3,accepted,", "3,4,refused,unknown_product", "4,5,refused,unknown_brand"}},
		{"a key column, twins in file order", "f.csv", "idempotencyKey," + goodHeader + "k1,c9,jon@example.com,events,unsubscribed,\nk1,c9,jon@example.com,events,unsubscribed,\nk1,c9,jon@example.com,events,subscribed" + dated + "k\u00fc,c9,jon@example.com,events,unsubscribed,\n",
			Options{BrandID: "acme"}, []string{"1,2,accepted,", "2,3,replayed,", "3,4,refused,key_reused", "4,5,refused,invalid"}},
		{"NDJSON", "f.ndjson", "\xef\xbb\xbf{\"brandId\":\"acme\",\"contactKey\":\"n1\",\"email\":\"kim@example.com\",\"productId\":\"events\",\"desiredState\":\"subscribed\",\"occurredAt\":\"2026-01-31\",\"consent\":{\"legalBasis\":\"CONSENT_WITH_NOTICE\"}}\r\n\n" +
			"{\"brandId\":\"acme\",\"contactKey\":\"n1\",\"email\":\"kim@example.com\",\"productId\":\"events\",\"desiredState\":\"unsubscribed\",\"DesiredState\":\"subscribed\"}\n[]\n{\n" +
			"{\"contactKey\":\"n1\",\"email\":\"kim@example.com\",\"productId\":\"events\",\"desiredState\":\"unsubscribed\"}\n{\"brandId\":\"a\\u0000\",\"contactKey\":\"n1\",\"email\":\"kim@example.com\",\"productId\":\"events\",\"desiredState\":\"unsubscribed\"}",
			Options{}, []string{"1,1,accepted,", "2,3,refused,unknown_member", "3,4,refused,type", "4,5,refused,invalid_json", "5,6,refused,required", "6,7,refused,control_character"}},
		{"NDJSON against the command line", "f.ndjson", "{\"brandId\":\"other\",\"contactKey\":\"n2\",\"email\":\"lea@example.com\",\"productId\":\"events\",\"desiredState\":\"unsubscribed\"}\n",
			Options{BrandID: "acme"}, []string{"1,1,refused,conflict"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			casetest.Add()
			w := &world{t: t, pool: w.pool, db: w.db, folder: t.TempDir()}
			c.options.Path = w.file(c.file, c.content)
			report, results, err := w.run(c.options)
			if err != nil {
				t.Fatal(err)
			}
			w.mustAddUp(report, results)
			var got []string
			for _, line := range results {
				p := strings.SplitN(line, ",", 6)
				got = append(got, strings.Join(p[:3], ",")+","+strings.Split(p[4], ";")[0])
				if strings.Contains(line, "example") || (p[3] == "") != (p[2] == "refused") {
					t.Errorf("result %q", line)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
	if got := w.texts(`SELECT consent->>'explanation' FROM subscription_requests WHERE consent->>'explanation' IS NOT NULL`); !slices.Equal(got, []string{"first\nsecond, \"third\"\r\n"}) {
		t.Errorf("a quoted text became %q", got)
	}
}

// FuzzCSV compares the records with those of the standard library's reader, which takes
// more; whatever ours takes, both read alike.
func FuzzCSV(f *testing.F) {
	for _, seed := range []string{goodHeader, "a,b\nc,\"d\ne\"\r\n", "\"a\"\"b\",\n\n\nc,d", "a,\"b", "\r", "\xff,a\n", "a\"b,c\n", "\"a\"b\n", strings.Repeat("x,", 40_000)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l := newLines(strings.NewReader(text), place{})
		theirs := csv.NewReader(strings.NewReader(text))
		theirs.FieldsPerRecord = -1
		for last := int64(0); ; {
			fields, line, more, err := l.fields()
			if err != nil {
				if !strings.HasPrefix(err.Error(), "line ") {
					t.Fatalf("an error without its line: %v", err)
				}
				return
			}
			if !more {
				break
			}
			if line <= last || l.at.line < line || l.at.offset > int64(len(text)) {
				t.Fatalf("record of line %d ends at line %d, byte %d of %d", line, l.at.line, l.at.offset, len(text))
			}
			last = line
			want, err := theirs.Read()
			if err != nil {
				t.Fatalf("the standard library refuses what we took: %v", err)
			}
			for i := range want {
				want[i] = strings.ReplaceAll(want[i], "\r\n", "\n")
			}
			for i := range fields {
				fields[i] = strings.ReplaceAll(fields[i], "\r\n", "\n")
			}
			if !slices.Equal(fields, want) {
				t.Fatalf("we read %q, the standard library %q", fields, want)
			}
		}
		if _, err := theirs.Read(); !errors.Is(err, io.EOF) {
			t.Fatalf("we are at the end, the standard library is not: %v", err)
		}
		if l.at.offset != int64(len(text)) {
			t.Fatalf("at the end at byte %d of %d", l.at.offset, len(text))
		}
	})
}
