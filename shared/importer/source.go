package importer

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"hubsync/shared/intake"
	"hubsync/shared/postgres"
)

// Formats of a file.
const (
	formatCSV    = "csv"
	formatNDJSON = "ndjson"
)

// record is one row of the file.
type record struct {
	row  intake.Row
	line int64 // where it begins, from 1 on
	end  place
}

// source is a file that was read once: it is of the dialect, and its rows are counted.
type source struct {
	file   *os.File
	info   os.FileInfo
	format string
	digest string // SHA-256 of the whole file, hex
	rows   int64
	start  place // of the first row
	header []string
	lines  *lines
}

// openSource opens the file and reads it to its end.
func openSource(o Options) (*source, error) {
	format, err := formatOf(o)
	if err != nil {
		return nil, err
	}
	file, err := os.Open(o.Path)
	if err != nil {
		return nil, fmt.Errorf("open the file: %w", err)
	}
	s := &source{file: file, format: format}
	if err := s.scan(o); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return s, nil
}

func formatOf(o Options) (string, error) {
	format := o.Format
	if format == "" {
		format = strings.TrimPrefix(strings.ToLower(filepath.Ext(o.Path)), ".")
	}
	switch format {
	case formatCSV, formatNDJSON:
		return format, nil
	case "jsonl":
		return formatNDJSON, nil
	}
	return "", usage("the file's name ends neither in .csv nor in .ndjson: say --format csv or --format ndjson")
}

func (s *source) close() error { return s.file.Close() }

// scan reads the whole file: its digest, its header, and the number of its rows.
func (s *source) scan(o Options) error {
	var err error
	if s.info, err = s.file.Stat(); err != nil {
		return fmt.Errorf("look at the file: %w", err)
	}
	if !s.info.Mode().IsRegular() {
		return usage("only a regular file can be imported: it is read twice, and again where an import goes on")
	}
	hash := sha256.New()
	s.lines = newLines(io.TeeReader(s.file, hash), place{})
	if err := s.lines.begin(); err != nil {
		return err
	}
	if s.format == formatCSV {
		if err := s.readHeader(o); err != nil {
			return err
		}
	}
	s.start = s.lines.at
	for {
		more, err := s.check()
		if err != nil {
			return err
		}
		if !more {
			break
		}
		s.rows++
	}
	s.digest = hex.EncodeToString(hash.Sum(nil))
	return nil
}

// check reads one row and refuses what is not of the dialect.
func (s *source) check() (more bool, err error) {
	if s.format == formatNDJSON {
		_, _, more, err = s.lines.plain()
		return more, err
	}
	fields, at, more, err := s.lines.fields()
	switch {
	case err != nil || !more:
		return false, err
	case slices.Equal(fields, s.header):
		return false, refused(at, "repeats the header: were two files joined?")
	case len(fields) != len(s.header):
		return false, refused(at, fmt.Sprintf("has %d fields, the header has %d", len(fields), len(s.header)))
	}
	return true, nil
}

// seek continues behind what an import has done, or begins with the first row.
func (s *source) seek(at postgres.Import) error {
	from := s.start
	if at.RowsDone > 0 {
		from = place{offset: at.ByteOffset, line: at.Line}
	}
	if _, err := s.file.Seek(from.offset, io.SeekStart); err != nil {
		return fmt.Errorf("go to row %d of the file: %w", at.RowsDone+1, err)
	}
	s.lines = newLines(s.file, from)
	return nil
}

// next reads one row; more is false at the file's end.
func (s *source) next() (rec record, more bool, err error) {
	if s.format == formatNDJSON {
		var raw []byte
		raw, rec.line, more, err = s.lines.plain()
		if more && err == nil {
			rec.row = intake.DecodeRow(raw)
		}
		rec.end = s.lines.at
		return rec, more, err
	}
	fields, at, more, err := s.lines.fields()
	if err != nil || !more {
		return record{}, false, err
	}
	if len(fields) != len(s.header) {
		return record{}, false, refused(at, "has not the header's number of fields any more: the file changed while it was read")
	}
	rec.line, rec.end = at, s.lines.at
	for i, member := range s.header {
		rec.row.Set(member, fields[i])
	}
	return rec, true, nil
}

// unchanged reports whether the file still is as it was when it was opened.
func (s *source) unchanged() bool {
	now, err := os.Stat(s.file.Name())
	return err == nil && os.SameFile(now, s.info) && now.Size() == s.info.Size() && now.ModTime().Equal(s.info.ModTime())
}

// needed are the columns without which no row can be right.
var needed = []string{"contactKey", "email", "desiredState"}

// readHeader reads a CSV file's first record. A name that is not known is not repeated: a
// file without a header has a person's data there.
func (s *source) readHeader(o Options) error {
	fields, at, more, err := s.lines.fields()
	switch {
	case err != nil:
		return err
	case !more:
		return usage("the file is empty: it needs a header line, such as %s", strings.Join(needed, ","))
	case len(fields) == 1 && strings.ContainsAny(fields[0], ";\t|"):
		return refused(at, "separates its columns by semicolons, tabs or bars: the separator is a comma")
	}
	for i, name := range fields {
		if !slices.Contains(intake.RowMembers, name) {
			return refused(at, fmt.Sprintf("column %d is not known%s; the columns are %s", i+1, hint(name), strings.Join(intake.RowMembers, ", ")))
		}
		if slices.Contains(fields[:i], name) {
			return refused(at, fmt.Sprintf("has the column %s twice", name))
		}
	}
	s.header = slices.Clone(fields)
	for _, name := range needed {
		if !slices.Contains(fields, name) {
			return refused(at, "has no column "+name)
		}
	}
	for name, given := range map[string]string{"brandId": o.BrandID, "productId": o.ProductID} {
		flag := "--" + strings.TrimSuffix(name, "Id")
		if has := slices.Contains(fields, name); has && given != "" {
			return refused(at, fmt.Sprintf("has a column %s: leave %s out", name, flag))
		} else if !has && given == "" {
			return refused(at, fmt.Sprintf("has no column %s: add it, or give %s", name, flag))
		}
	}
	return nil
}

// hint helps with the usual mistakes in a column's name.
func hint(name string) string {
	for _, known := range intake.RowMembers {
		if strings.EqualFold(known, strings.ReplaceAll(strings.ReplaceAll(strings.TrimSpace(name), "_", ""), " ", "")) {
			return "; names are exact: " + known
		}
	}
	return ""
}
