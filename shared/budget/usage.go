package budget

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Usage is what of a portal's budget is spent, by Redis' clock.
type Usage struct {
	Known       bool // false: nobody called lately, or Redis lost it
	Window      int  // calls that count in the rolling window now
	Day         int  // calls since the account's midnight
	ClosedUntil time.Time
}

// Usage reads what of a portal's budget is spent; it takes nothing. window is HubSpot's.
func (l *Limiter) Usage(ctx context.Context, portal string, window time.Duration) (Usage, error) {
	timed, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	pipe := l.cfg.Redis.Pipeline()
	clock, text := pipe.Time(timed), pipe.Get(timed, l.cfg.Prefix+"budget:{"+portal+"}")
	if _, err := pipe.Exec(timed); err != nil && !errors.Is(err, redis.Nil) {
		return Usage{}, fmt.Errorf("read the budget of portal %s: %w", portal, err)
	}
	if text.Val() == "" {
		return Usage{}, nil
	}
	return usageOf(text.Val(), clock.Val(), (window + guard).Milliseconds())
}

// usageOf reads the script's state: closedUntil,dayReset,dayUsed,…|at:optOut:rest …|…
func usageOf(text string, now time.Time, windowMs int64) (Usage, error) {
	head, rest, ok := strings.Cut(text, "|")
	slots, _, ok2 := strings.Cut(rest, "|")
	fields := strings.Split(head, ",")
	if !ok || !ok2 || len(fields) < 3 {
		return Usage{}, errors.New("the budget's state is not what this version writes")
	}
	closed, err1 := strconv.ParseInt(fields[0], 10, 64)
	reset, err2 := strconv.ParseInt(fields[1], 10, 64)
	day, err3 := strconv.Atoi(fields[2])
	if err := errors.Join(err1, err2, err3); err != nil {
		return Usage{}, fmt.Errorf("the budget's state is not what this version writes: %w", err)
	}
	u := Usage{Known: true, Day: day}
	if now.UnixMilli() >= reset {
		u.Day = 0
	}
	if closed > now.UnixMilli() {
		u.ClosedUntil = time.UnixMilli(closed).UTC()
	}
	for slot := range strings.FieldsSeq(slots) {
		var at, optOut, other int64
		if _, err := fmt.Sscanf(slot, "%d:%d:%d", &at, &optOut, &other); err != nil {
			return Usage{}, fmt.Errorf("the budget's state is not what this version writes: %w", err)
		}
		if now.UnixMilli()-at < windowMs {
			u.Window += int(optOut + other)
		}
	}
	return u, nil
}
