// Package rdsca holds the roots of the certificates of RDS databases, which stand in no
// list of public roots. Only migrations and operators need them: every other function goes
// through RDS Proxy, whose certificate has a public root.
package rdsca

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// roots are AWS's regional root certificates for RDS as AWS publishes them (RSA 2048, RSA
// 4096 and ECC 384 of generation G1, valid until 2061 and later). A region that is missing
// here needs PGSSLROOTCERT.
//
//go:embed roots.pem
var roots []byte

// File writes the roots into the folder for temporary files, once, and returns the path:
// a database URL names them by file.
var File = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "rdsca-")
	if err != nil {
		return "", fmt.Errorf("make a folder for the roots of RDS: %w", err)
	}
	path := filepath.Join(dir, "roots.pem")
	if err := os.WriteFile(path, roots, 0o600); err != nil {
		return "", fmt.Errorf("write the roots of RDS: %w", err)
	}
	return path, nil
})
