// Package migrations holds the schema's history: forward only, one file a step.
package migrations

import "embed"

// Files are the migrations, named NNNNN_name.sql.
//
//go:embed *.sql
var Files embed.FS
