package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// freshCredentials gives a new connection the user and password of this moment. What
// may have been rotated is tried first, on a connection of its own: the pool has no
// second attempt, and a rotation must cost no request. New connections are rare.
func (cfg Config) freshCredentials(ctx context.Context, c *pgx.ConnConfig) error {
	if err := cfg.take(ctx, c); err != nil || cfg.Refused == nil {
		return err
	}
	conn, err := pgconn.ConnectConfig(ctx, &c.Config)
	if err == nil {
		return conn.Close(ctx)
	}
	if !credentialsRefused(err) || !cfg.Refused() {
		return fmt.Errorf("connect to the database: %w", err)
	}
	return cfg.take(ctx, c)
}

func (cfg Config) take(ctx context.Context, c *pgx.ConnConfig) (err error) {
	if cfg.Password != nil {
		c.Password, err = cfg.Password(ctx, c.Host, c.Port, c.User)
		return err
	}
	text, err := cfg.Current(ctx)
	if err != nil {
		return err
	}
	u, err := url.Parse(text)
	if err != nil || u.User == nil {
		return errors.New("the rotated database URL cannot be read: it should look like postgres://user:password@host:5432/name")
	}
	c.User = u.User.Username()
	c.Password, _ = u.User.Password()
	return nil
}

// credentialsRefused: invalid_password, invalid_authorization_specification.
func credentialsRefused(err error) bool {
	var pe *pgconn.PgError
	return errors.As(err, &pe) && (pe.Code == "28P01" || pe.Code == "28000")
}

// checkTLS refuses what looks like protection and is none: require encrypts for
// whoever answers, prefer and allow fall back to plain text. Another machine is reached
// with its certificate verified, or, said explicitly, without TLS.
func checkTLS(c *pgx.ConnConfig, text string) error {
	if strings.HasPrefix(c.Host, "/") || c.Host == "localhost" {
		return nil
	}
	if ip, err := netip.ParseAddr(c.Host); err == nil && ip.IsLoopback() {
		return nil
	}
	u, err := url.Parse(text)
	if err != nil {
		return errors.New("database URL cannot be read")
	}
	switch mode := u.Query().Get("sslmode"); mode {
	case "verify-full", "verify-ca", "disable":
		return nil
	default:
		return fmt.Errorf("database URL: sslmode=%s does not verify who answers: use verify-full (or disable, where the network is your own)", mode)
	}
}
