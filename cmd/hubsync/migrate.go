package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"hubsync/migrations"
	"hubsync/shared/postgres"
)

func newMigrate() *cobra.Command {
	var roles, hash bool
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database of DATABASE_URL to the newest schema",
		Long: `migrate connects to the database itself, not through RDS Proxy, and applies the
migrations that it has not had. It only goes forward, and twice is once.

With --roles it also gives each function's database role exactly the rights that the
function needs, and makes the roles that are missing.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if hash {
				return printSchemaHash()
			}
			dsn := os.Getenv("DATABASE_URL")
			if dsn == "" {
				return errors.New("DATABASE_URL is not set: give the database to migrate, such as postgres://user@host:5432/name")
			}
			from, to, err := postgres.Migrate(cmd.Context(), dsn)
			if err != nil {
				return err
			}
			if from == to {
				fmt.Printf("schema is at version %d already\n", to)
			} else {
				fmt.Printf("schema: version %d → %d\n", from, to)
			}
			if roles {
				return postgres.GrantRoles(cmd.Context(), dsn)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&roles, "roles", false, "make the functions' database roles and state their rights anew")
	cmd.Flags().BoolVar(&hash, "hash", false, "only print the hash of the newest schema, as template.yaml names it")
	return cmd
}

func printSchemaHash() error {
	all, err := migrations.Hashes()
	if err != nil {
		return err
	}
	fmt.Println(all[len(all)-1])
	return nil
}
