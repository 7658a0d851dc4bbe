package migrations

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"strings"
)

// Hashes returns the hash of the schema after each migration, the newest last: each is
// made of the one before it and of its own file's name and text. A deployment names the
// schema that it needs by the last one, and knows an older schema among the others.
func Hashes() ([]string, error) { return hashes(Files) }

func hashes(files fs.FS) ([]string, error) {
	entries, err := fs.ReadDir(files, ".") // sorted by name
	if err != nil {
		return nil, fmt.Errorf("read the migrations: %w", err)
	}
	var all []string
	last := ""
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".sql") {
			continue
		}
		text, err := fs.ReadFile(files, e.Name())
		if err != nil {
			return nil, fmt.Errorf("read migration %s: %w", e.Name(), err)
		}
		sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%d\n%s", last, e.Name(), len(text), text))
		last = hex.EncodeToString(sum[:16])
		all = append(all, last)
	}
	return all, nil
}
