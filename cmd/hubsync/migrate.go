package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"hubsync/shared/postgres"
)

func newMigrate() *cobra.Command {
	return &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database of DATABASE_URL to the newest schema",
		Long: `migrate connects to the database itself, not through RDS Proxy, and applies the
migrations that it has not had. It only goes forward, and twice is once.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
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
				return nil
			}
			fmt.Printf("schema: version %d → %d\n", from, to)
			return nil
		},
	}
}
