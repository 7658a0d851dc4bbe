package importer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// MaxRecord is the longest record, in bytes: as long as a request's body may be. A quote
// that is never closed would otherwise make one record of the rest of the file.
const MaxRecord = 64 << 10

// lines reads records one after the other, in memory of one record.
type lines struct {
	from   *bufio.Reader
	at     place
	record []byte
	parts  []string
}

func newLines(from io.Reader, at place) *lines {
	return &lines{from: bufio.NewReaderSize(from, 2*MaxRecord), at: at}
}

// refused is a file that is not of the dialect.
func refused(line int64, reason string) error { return usage("line %d: %s", line, reason) }

// begin looks at the first bytes: it skips a byte order mark, and names what the file is
// if it is another kind of file.
func (l *lines) begin() error {
	head, err := l.from.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the file: %w", err)
	}
	for prefix, what := range map[string]string{
		"\xff\xfe": "is UTF-16", "\xfe\xff": "is UTF-16", "\x00\x00\xfe\xff": "is UTF-32",
		"\x1f\x8b": "is compressed (gzip)", "PK\x03\x04": "is a spreadsheet or a ZIP archive", "\xd0\xcf\x11\xe0": "is an old spreadsheet",
	} {
		if bytes.HasPrefix(head, []byte(prefix)) {
			return usage("the file %s: save it as CSV or NDJSON in UTF-8", what)
		}
	}
	if bytes.HasPrefix(head, []byte("\xef\xbb\xbf")) {
		n, _ := l.from.Discard(3)
		l.at.offset += int64(n)
	}
	return nil
}

// physical appends the next physical line, its end included, to the record that begins in
// the given line.
func (l *lines) physical(begin int64) (more bool, err error) {
	text, err := l.from.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull), len(l.record)+len(text) > MaxRecord:
		if bytes.IndexByte(text, '\n') < 0 && bytes.IndexByte(text, '\r') >= 0 {
			return false, refused(begin, crOnly)
		}
		return false, refused(begin, "is longer than 64 KiB, or opens a quote that is never closed")
	case err != nil && !errors.Is(err, io.EOF):
		return false, fmt.Errorf("read the file: %w", err)
	case len(text) == 0:
		return false, nil
	}
	l.record = append(l.record, text...)
	l.at.offset += int64(len(text))
	l.at.line++
	return true, nil
}

const crOnly = "ends in a carriage return alone: lines end in LF or CRLF"

// checked refuses a record that is not text in UTF-8.
func checked(record []byte, line int64) error {
	switch {
	case bytes.IndexByte(record, 0) >= 0:
		return refused(line, "holds a NUL: the file is binary, or UTF-16 without its mark; save it in UTF-8")
	case !utf8.Valid(record):
		return refused(line, "is not UTF-8: is it Latin-1 or Windows-1252? convert it, for example with iconv -f WINDOWS-1252 -t UTF-8")
	}
	return nil
}

// trimEnd cuts LF or CRLF off.
func trimEnd(record []byte) []byte {
	if text, ended := bytes.CutSuffix(record, []byte("\n")); ended {
		return bytes.TrimSuffix(text, []byte("\r"))
	}
	return record
}

// plain returns the next line that is not blank, and its number.
func (l *lines) plain() (text []byte, line int64, more bool, err error) {
	for {
		l.record = l.record[:0]
		if more, err := l.physical(l.at.line + 1); err != nil || !more {
			return nil, 0, false, err
		}
		if err := checked(l.record, l.at.line); err != nil {
			return nil, 0, false, err
		}
		text := trimEnd(l.record)
		if bytes.IndexByte(text, '\r') >= 0 {
			return nil, 0, false, refused(l.at.line, crOnly)
		}
		if len(bytes.TrimSpace(text)) > 0 {
			return text, l.at.line, true, nil
		}
	}
}

// fields returns the fields of the next CSV record that is not a blank line, and the line
// that it begins in (RFC 4180, and LF as well as CRLF). They are good until the next call.
func (l *lines) fields() (fields []string, line int64, more bool, err error) {
	for {
		l.record = l.record[:0]
		begin := l.at.line + 1
		// A record goes on while a quote is open: then it has an odd number of them.
		for quotes := 0; ; {
			before := len(l.record)
			more, err := l.physical(begin)
			if err != nil {
				return nil, 0, false, err
			}
			if !more && before == 0 {
				return nil, 0, false, nil
			}
			if !more {
				return nil, 0, false, refused(begin, "opens a quote that is never closed")
			}
			if quotes += bytes.Count(l.record[before:], []byte{'"'}); quotes%2 == 0 {
				break
			}
		}
		if err := checked(l.record, begin); err != nil {
			return nil, 0, false, err
		}
		text := trimEnd(l.record)
		if len(text) == 0 {
			continue
		}
		if fields, err = l.split(string(text), begin); err != nil {
			return nil, 0, false, err
		}
		return fields, begin, true, nil
	}
}

// split cuts one record into its fields.
func (l *lines) split(text string, line int64) ([]string, error) {
	l.parts = l.parts[:0]
	for {
		field, rest, err := cutField(text, line)
		if err != nil {
			return nil, err
		}
		l.parts = append(l.parts, field)
		if rest == "" {
			return l.parts, nil
		}
		text = rest[1:] // behind the comma
	}
}

// cutField reads the first field; rest begins with the comma behind it, or is empty.
func cutField(text string, line int64) (field, rest string, err error) {
	if text == "" || text[0] != '"' {
		end := 0
		for ; end < len(text) && text[end] != ','; end++ {
			switch text[end] {
			case '"':
				return "", "", refused(line, "has a quote inside a field that does not begin with one")
			case '\r':
				return "", "", refused(line, crOnly)
			}
		}
		return text[:end], text[end:], nil
	}
	var value []byte
	for i := 1; i < len(text); i++ {
		if text[i] != '"' {
			value = append(value, text[i])
			continue
		}
		if i+1 < len(text) && text[i+1] == '"' {
			value = append(value, '"')
			i++
			continue
		}
		if rest = text[i+1:]; rest != "" && rest[0] != ',' {
			return "", "", refused(line, "has text behind a closing quote")
		}
		return string(value), rest, nil
	}
	return "", "", refused(line, "opens a quote that is never closed")
}
