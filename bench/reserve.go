package main

import (
	"context"
	"fmt"
	"math"
	"net"
	"os/exec"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"hubsync/shared/budget"
)

const reserveClients = 8

// benchBudget reserves calls with the script, beside a script that does nothing and
// beside redis_rate, whose GCRA keeps one limit with no refund.
func benchBudget(ctx context.Context, b *bench) ([]row, error) {
	url, kind, stop, err := startRedis(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()
	client, err := budget.Open(url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }() // the server goes too
	limiter := budget.NewLimiter(budget.Config{Redis: client, Prefix: "bench:", TrustEmpty: true, Clock: time.Now})
	limits := budget.Limits{Burst: 150, Window: 10 * time.Second, Daily: 1_000_000_000, Location: time.UTC}
	var n atomic.Int64
	reserve := func(ctx context.Context, _ int) (int, error) {
		_, err := limiter.Reserve(ctx, budget.Request{Portal: "main", Lane: budget.LaneBulk, N: 1, ID: "r" + strconv.FormatInt(n.Add(1), 10), Limits: limits})
		return 1, err
	}
	nothing := redis.NewScript(`return {1, 0, ""}`)
	idle := func(ctx context.Context, _ int) (int, error) {
		return 1, nothing.Run(ctx, client, []string{"bench:nothing"}, 1).Err()
	}
	gcra := redis_rate.NewLimiter(client)
	peer := func(ctx context.Context, _ int) (int, error) {
		_, err := gcra.Allow(ctx, "bench", redis_rate.Limit{Rate: 150, Burst: 150, Period: 10 * time.Second})
		return 1, err
	}
	var contenders []contender
	for name, op := range map[string]func(context.Context, int) (int, error){"ours": reserve, "nothing": idle, "redis_rate": peer} {
		contenders = append(contenders, contender{name, func(ctx context.Context) (float64, error) {
			return rate(ctx, reserveClients, b.form.round/2, op)
		}})
	}
	s, err := interleave(ctx, b.form.rounds, contenders)
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("budget script, 8 clients, %s", kind)
	return []row{
		{what: what, unit: "/s", measured: s["ours"], ratio: s["ours"].over(s["redis_rate"]), gate: 0.12, short: "budget÷redis_rate",
			note: "redis_rate " + figure(s["redis_rate"].median())},
		{what: what, unit: "/s", measured: s["ours"], ratio: s["ours"].over(s["nothing"]), note: "an empty script " + figure(s["nothing"].median())},
	}, nil
}

// startRedis starts a Redis of its own where there is one, else the one of the local
// world, whose scripts are interpreted in Go.
func startRedis(ctx context.Context) (url, kind string, stop func(), err error) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		m := miniredis.NewMiniRedis()
		if err := m.Start(); err != nil {
			return "", "", nil, fmt.Errorf("start miniredis: %w", err)
		}
		return "redis://" + m.Addr(), "miniredis", m.Close, nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", nil, fmt.Errorf("find a port: %w", err)
	}
	addr := l.Addr().(*net.TCPAddr)
	_ = l.Close() // Redis takes the port
	cmd := exec.CommandContext(ctx, program, "--bind", "127.0.0.1", "--port", strconv.Itoa(addr.Port), "--save", "", "--appendonly", "no")
	if err := cmd.Start(); err != nil {
		return "", "", nil, fmt.Errorf("start redis-server: %w", err)
	}
	stop = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() } // it keeps nothing
	url = "redis://" + addr.String()
	return url, "redis-server", stop, waitForRedis(ctx, url)
}

func waitForRedis(ctx context.Context, url string) error {
	o, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	client := redis.NewClient(o)
	defer func() { _ = client.Close() }() // only asked
	for i := range 200 {
		if err = client.Ping(ctx).Err(); err == nil {
			return nil
		}
		time.Sleep(time.Duration(math.Min(float64(i+1), 25)) * time.Millisecond)
	}
	return fmt.Errorf("redis does not answer: %w", err)
}
