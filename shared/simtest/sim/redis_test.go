package sim

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// redisServer is a Redis on the world's time. A machine that is busy must not make it
// look away: what is a timeout elsewhere is patience here, and a fault is a decision.
type redisServer struct {
	server *miniredis.Miniredis
	client *redis.Client
	s      *scheduler // of the world that runs now
	away   func() bool
}

func newRedis(t *testing.T) *redisServer {
	t.Helper()
	r := &redisServer{server: miniredis.RunT(t)}
	r.client = redis.NewClient(&redis.Options{
		Addr: r.server.Addr(), DialTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute, DisableIdentity: true, MaxRetries: -1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	r.client.AddHook(r)
	t.Cleanup(func() { _ = r.client.Close() }) // the server goes too
	return r
}

// serve gives the Redis to a world.
func (r *redisServer) serve(s *scheduler, away func() bool) {
	r.s, r.away = s, away
	r.server.FlushAll()
}

var errAway = errors.New("simulated: Redis is away")

// DialHook is part of go-redis' interface.
func (r *redisServer) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return next(context.WithoutCancel(ctx), network, address)
	}
}

// ProcessHook sets the time, and makes every command a point.
func (r *redisServer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		// The script itself is sent where this server does not know it yet: that depends on
		// the worlds before, and is no point.
		if command.Name() == "evalsha" {
			r.s.point("before budget")
		}
		if r.away() {
			command.SetErr(errAway)
			return errAway
		}
		r.server.SetTime(r.s.now)
		return next(context.WithoutCancel(ctx), command)
	}
}

// ProcessPipelineHook is part of go-redis' interface.
func (r *redisServer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
