package importer

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"hubsync/shared/intake"
)

// resultsHeader is the first line of a results file. The file never repeats a row's
// content: it names a row by its number and its line.
const resultsHeader = "row,line,outcome,request_id,code,detail\n"

// results is the results file. It is written before the transaction of its rows commits,
// at the place that the last committed one left, so that it is exact after any crash.
type results struct{ file *os.File }

// openResults opens the file, and keeps a second import from writing to it.
func openResults(path string) (*results, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the results file: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(usage("another import writes to %s: wait for it, or give another --results", path), file.Close())
	}
	return &results{file}, nil
}

func (r *results) close() error { return r.file.Close() }

// holds reports whether the file has what an earlier run wrote to it.
func (r *results) holds(size int64) bool {
	head := make([]byte, len(resultsHeader))
	info, err := r.file.Stat()
	if err != nil || info.Size() < size {
		return false
	}
	_, err = r.file.ReadAt(head, 0)
	return err == nil && string(head) == resultsHeader
}

// write puts text at the given place and drops what stood behind it; it returns the place
// behind the text. At 0 it begins with the header.
func (r *results) write(at int64, text []byte) (end int64, err error) {
	if at == 0 {
		text = append([]byte(resultsHeader), text...)
	}
	end = at + int64(len(text))
	if err = r.file.Truncate(at); err == nil {
		_, err = r.file.WriteAt(text, at)
	}
	if err == nil {
		err = r.file.Sync()
	}
	if err != nil {
		return at, fmt.Errorf("write the results file: %w", err)
	}
	return end, nil
}

func writeResult(text *bytes.Buffer, l line, outcome, requestID string, problems []intake.RowProblem) {
	codes, details := make([]string, len(problems)), make([]string, len(problems))
	for i, p := range problems {
		codes[i], details[i] = p.Code, p.Field+" "+p.Detail
	}
	detail := strings.ReplaceAll(strings.Join(details, "; "), `"`, `""`)
	if detail != "" {
		detail = `"` + detail + `"`
	}
	fmt.Fprintf(text, "%d,%d,%s,%s,%s,%s\n", l.number, l.line, outcome, requestID, strings.Join(codes, ";"), detail)
}
