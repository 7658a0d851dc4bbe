package sim

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"hubsync/shared/postgres/postgrestest"
)

// database is one PostgreSQL database that serves one world after the other.
type database struct {
	t     *testing.T
	hooks *hooks        // of the world that runs now
	stage *pgxpool.Pool // the product's: every transaction of it is a point
	own   *pgx.Conn     // the simulation's
}

// hooks make a transaction a point, and break it there.
type hooks struct {
	s *scheduler
	// executed is told of every statement that the database carried out, also where its
	// answer got lost.
	executed func(a *actor, sql string)
}

// Time is a session's setting, so that both functions are still inlined.
const prepareDatabase = `
CREATE OR REPLACE FUNCTION hubsync.now() RETURNS timestamptz LANGUAGE sql STABLE
  AS $$ SELECT current_setting('sim.now')::timestamptz $$;
CREATE OR REPLACE FUNCTION hubsync.clock() RETURNS timestamptz LANGUAGE sql VOLATILE
  AS $$ SELECT current_setting('sim.now')::timestamptz $$`

const tablesToClear = `
SELECT string_agg(format('%I', c.relname), ', ') FROM pg_class c
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND c.relname <> 'goose_db_version'`

const turnVacuumOff = `
DO $$ DECLARE t text; BEGIN
  FOR t IN SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' LOOP
    EXECUTE format('ALTER TABLE %I SET (autovacuum_enabled = false)', t);
  END LOOP;
END $$`

// newDatabase makes a database for worlds. Without vacuum the same statements on an empty
// table lay it out the same way, so that even rows without an order come in one.
func newDatabase(t *testing.T) *database {
	t.Helper()
	d := &database{t: t}
	dsn := postgrestest.DSN(t)
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	d.own = conn
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // the database goes too
	for _, statement := range append(strings.Split(prepareDatabase, ";\n"), turnVacuumOff) {
		d.exec(statement)
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 8
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	config.ConnConfig.Tracer = d
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return &breakable{Conn: conn}, err
	}
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false } // it would hide a restart
	config.PrepareConn = d.setClock
	if d.stage, err = pgxpool.NewWithConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.stage.Close)
	return d
}

func (d *database) exec(sql string, args ...any) {
	d.t.Helper()
	if _, err := d.own.Exec(d.t.Context(), sql, args...); err != nil {
		d.t.Fatalf("%v\n%s", err, sql)
	}
}

// clear empties every table.
func (d *database) clear() {
	var tables string
	if err := d.own.QueryRow(d.t.Context(), tablesToClear).Scan(&tables); err != nil {
		d.t.Fatal(err)
	}
	d.exec("TRUNCATE " + tables)
	d.stage.Reset() // a broken connection of the last world is none of the next
}

// setClock gives a session the world's time. A connection that is broken is handed out as
// it is: what comes next must fail.
func (d *database) setClock(ctx context.Context, conn *pgx.Conn) (bool, error) {
	_, _ = conn.PgConn().Exec(ctx, "SET sim.now = '"+d.moment()+"'").ReadAll()
	h := d.hooks
	if h == nil || h.s.current == nil {
		return true, nil
	}
	if a := h.s.current; a.cutConn {
		a.cutConn = false
		brokenOf(conn).cut = true
	}
	return true, nil
}

func (d *database) moment() string {
	if d.hooks == nil {
		return "2026-03-02T12:00:00Z"
	}
	return d.hooks.s.now.UTC().Format("2006-01-02T15:04:05.000000Z07:00")
}

// restart ends every session of the product, as a restart of the server does.
func (d *database) restart() {
	d.exec(`SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
}

// TraceAcquireStart makes the beginning of every transaction a point.
func (d *database) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	if d.hooks != nil && d.hooks.s.current != nil {
		operation := operationOf()
		d.hooks.s.point("before " + operation)
		d.hooks.s.current.doing = operation
	}
	return ctx
}

// TraceAcquireEnd is part of pgxpool's interface.
func (d *database) TraceAcquireEnd(context.Context, *pgxpool.Pool, pgxpool.TraceAcquireEndData) {}

// TraceRelease notes that the transaction is over: the actor's next point comes after it.
func (d *database) TraceRelease(_ *pgxpool.Pool, _ pgxpool.TraceReleaseData) {
	if d.hooks == nil || d.hooks.s.current == nil {
		return
	}
	a := d.hooks.s.current
	a.after = a.doing
	a.loseCommit = false
}

// TraceQueryStart arms the loss of an answer at what commits: a commit, or a statement
// that is a transaction of its own.
func (d *database) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if d.hooks == nil || d.hooks.s.current == nil {
		return ctx
	}
	ctx = context.WithValue(ctx, sqlKey{}, data.SQL)
	if !d.hooks.s.current.loseCommit {
		return ctx
	}
	if data.SQL == "commit" || (data.SQL != "begin" && conn.PgConn().TxStatus() == 'I') {
		d.hooks.s.current.loseCommit = false
		brokenOf(conn).lose = true
	}
	return ctx
}

// TraceQueryEnd says what was carried out.
func (d *database) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryEndData) {
	if d.hooks == nil || d.hooks.s.current == nil {
		return
	}
	if b := brokenOf(conn); data.Err == nil || b.lost {
		b.lost = false
		sql, _ := ctx.Value(sqlKey{}).(string)
		d.hooks.executed(d.hooks.s.current, sql)
	}
}

type sqlKey struct{}

// operationOf names the query method that is running: the one of postgres.DB.
func operationOf() string {
	pcs := make([]uintptr, 40)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	for {
		f, more := frames.Next()
		if i := strings.Index(f.Function, "hubsync/shared/postgres.(*DB)."); i >= 0 {
			name := f.Function[i+len("hubsync/shared/postgres.(*DB)."):]
			name, _, _ = strings.Cut(name, ".")
			return strings.ToUpper(name[:1]) + name[1:]
		}
		if !more {
			return "query"
		}
	}
}

// breakable is a connection to the database that breaks when it is told to.
type breakable struct {
	net.Conn
	cut  bool // the next write does not leave this machine
	lose bool // the next answer is read to its end, and does not arrive
	lost bool // that happened
}

var errCut = errors.New("simulated: the connection broke")

func brokenOf(conn *pgx.Conn) *breakable { return conn.PgConn().Conn().(*breakable) }

func (b *breakable) Write(p []byte) (int, error) {
	if b.cut {
		_ = b.Close() // that is the fault
		return 0, errCut
	}
	return b.Conn.Write(p)
}

// readyForQuery ends every answer: its transaction status follows.
var readyForQuery = []byte{'Z', 0, 0, 0, 5}

func (b *breakable) Read(p []byte) (int, error) {
	if !b.lose {
		return b.Conn.Read(p)
	}
	b.lose = false
	var answer []byte
	part := make([]byte, 8192)
	for len(answer) < 6 || !bytes.Equal(answer[len(answer)-6:len(answer)-1], readyForQuery) {
		n, err := b.Conn.Read(part)
		if err != nil {
			return 0, err
		}
		answer = append(answer, part[:n]...)
	}
	b.lost = true
	_ = b.Close() // that is the fault
	return 0, io.ErrUnexpectedEOF
}

var _ interface {
	pgx.QueryTracer
	pgxpool.AcquireTracer
	pgxpool.ReleaseTracer
} = (*database)(nil)
