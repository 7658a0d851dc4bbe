package budget

import (
	"context"
	_ "embed" // the script
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

//go:embed script.lua
var script string

// UpstashPrefix lets Upstash run the script without its database-wide lock; plain
// Redis refuses the flag.
const UpstashPrefix = "#!lua flags=allow-key-locking\n"

// redisTimeout is what one script call may take, its retry included.
const redisTimeout = 300 * time.Millisecond

// idleBound is below what any network between forgets.
const idleBound = 60 * time.Second

// poolSize is enough for one function that makes a few calls at once.
const poolSize = 8

// run calls the script. A failure that is not the caller's own makes Redis rest.
func (l *Limiter) run(ctx context.Context, portal, what string, windowMs int64, args ...any) (verdict, error) {
	timed, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	trust := 0
	if l.cfg.TrustEmpty {
		trust = 1
	}
	key := l.cfg.Prefix + "budget:{" + portal + "}"
	answer, err := l.script.Run(timed, l.cfg.Redis, []string{key}, append([]any{what, windowMs, trust}, args...)...).Slice()
	if err == nil {
		var v verdict
		if v, err = read(answer); err == nil {
			l.restored()
			return v, nil
		}
	}
	if ctx.Err() == nil {
		l.rest(l.cfg.Clock())
	}
	return verdict{}, fmt.Errorf("budget of portal %s: %s: %w", portal, what, err)
}

func read(answer []any) (verdict, error) {
	if len(answer) != 3 {
		return verdict{}, fmt.Errorf("an answer of %d values", len(answer))
	}
	granted, ok1 := answer[0].(int64)
	wait, ok2 := answer[1].(int64)
	reason, ok3 := answer[2].(string)
	if !ok1 || !ok2 || !ok3 {
		return verdict{}, errors.New("an answer of other types")
	}
	return verdict{granted == 1, wait, reason}, nil
}

// args are the script's arguments from ARGV[4] on.
func (a ask) args() []any {
	return []any{int(a.lane), a.n, a.limit, a.daily, a.resets[0], a.resets[1], a.resets[2], a.id, a.charge, a.elsewhere}
}

// Open returns a client for the REDIS_URL of a function that is frozen between
// invocations: short timeouts (the default read timeout costs five seconds on a dead
// socket), one retry, a small pool, no background notifications. Its errors do not show
// the URL. A password without TLS is refused but on the loopback.
func Open(url string) (*redis.Client, error) { return OpenIdle(url, idleBound) }

// OpenIdle is Open with another bound than a minute, after which an idle connection is
// not used again. By the wall clock, which a freeze does not stop: one call over a lost
// connection makes Redis count as away, and all but opt-outs wait for a window's end.
func OpenIdle(url string, idle time.Duration) (*redis.Client, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, errors.New("REDIS_URL cannot be read: it should look like rediss://default:password@host:6379")
	}
	if strings.HasPrefix(url, "redis://") && o.Password != "" && !isLoopback(o.Addr) {
		return nil, errors.New("REDIS_URL sends a password without TLS: use rediss://")
	}
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = redisTimeout, redisTimeout, redisTimeout
	o.DialerRetries = 1
	o.PoolSize, o.MaxRetries = poolSize, 1
	o.ConnMaxIdleTime = idle
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(o), nil
}

func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
