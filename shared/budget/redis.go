package budget

import (
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Open returns a client with settings for a function that is frozen between
// invocations: short timeouts (the default read timeout costs five seconds on a dead
// socket), a small pool, no background notifications.
func Open(url string, poolSize int) (*redis.Client, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, errors.New("REDIS_URL cannot be read: it should look like rediss://default:password@host:6379")
	}
	if strings.HasPrefix(url, "redis://") && o.Password != "" && !isLoopback(o.Addr) {
		return nil, errors.New("REDIS_URL sends a password without TLS: use rediss://")
	}
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = redisTimeout, redisTimeout, redisTimeout
	o.PoolSize, o.MaxRetries = poolSize, 1
	o.ConnMaxIdleTime = 60 * time.Second
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(o), nil
}

func isLoopback(addr string) bool {
	return strings.HasPrefix(addr, "127.") || strings.HasPrefix(addr, "localhost:") || strings.HasPrefix(addr, "[::1]")
}
