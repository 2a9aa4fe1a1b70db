package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-mq/penstock/internal/kit/proctest"
)

//go:embed bullmq/package.json
var bullPackage []byte

//go:embed bullmq/bullmq.mjs
var bullScript []byte

// bull is BullMQ with its documented limiter: max jobs per duration.
type bull struct {
	dir           string
	max, duration int
	is            string

	store
	port string
}

func (b *bull) name() string    { return "BullMQ" }
func (b *bull) version() string { return b.is }
func (b *bull) first() bool     { return b.max > 1 }
func (b *bull) setting() string {
	return fmt.Sprintf("`limiter: {max: %d, duration: %d}`", b.max, b.duration)
}

func (b *bull) open(ctx context.Context) (err error) {
	if err := b.store.open(b.dir); err != nil {
		return err
	}
	if _, b.port, err = net.SplitHostPort(b.store.Addr()); err != nil {
		return err
	}
	for name, text := range map[string][]byte{
		"package.json": bullPackage, "bullmq.mjs": bullScript,
	} {
		if err := os.WriteFile(filepath.Join(b.dir, name), text, 0o600); err != nil {
			return err
		}
	}
	install := exec.CommandContext(ctx, "npm", "install", "--omit=dev", "--no-package-lock",
		"--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = b.dir
	if out, err := install.CombinedOutput(); err != nil {
		return fmt.Errorf("npm install: %w\n%s", err, out)
	}
	b.is, err = b.ask(ctx, "version")
	return err
}

func (b *bull) command(ctx context.Context, words ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "node", append([]string{"bullmq.mjs", b.port}, words...)...)
	cmd.Dir = b.dir
	return cmd
}

func (b *bull) ask(ctx context.Context, words ...string) (string, error) {
	cmd := b.command(ctx, words...)
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", words[0], err, problems.String())
	}
	return strings.TrimSpace(string(out)), err
}

func (b *bull) add(ctx context.Context, n int, bulk bool) (time.Duration, error) {
	role := "fill"
	if bulk {
		role = "bulk"
	}
	said, err := b.ask(ctx, role, strconv.Itoa(n))
	if err != nil {
		return 0, err
	}
	seconds, err := strconv.ParseFloat(said, 64)
	return time.Duration(seconds * float64(time.Second)), err
}

func (b *bull) pause(ctx context.Context) error {
	_, err := b.ask(ctx, "pause")
	return err
}

func (b *bull) resume(ctx context.Context) error {
	_, err := b.ask(ctx, "resume")
	return err
}

// left asks Redis: a node per question would take the processors.
func (b *bull) left(ctx context.Context) (int, error) {
	var sum int64
	for state, count := range map[string]func(context.Context, string) *redis.IntCmd{
		"wait": b.client.LLen, "paused": b.client.LLen, "active": b.client.LLen,
		"delayed": b.client.ZCard, "prioritized": b.client.ZCard,
	} {
		n, err := count(ctx, "bull:compare:"+state).Result()
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return int(sum), nil
}

func (b *bull) work(url string) *exec.Cmd {
	spec := map[string]any{"url": url, "concurrency": 10 * slots}
	if url != "" {
		spec["concurrency"] = slots
		spec["limiter"] = map[string]int{"max": b.max, "duration": b.duration}
	}
	text, _ := json.Marshal(spec)
	return b.command(context.Background(), "work", string(text))
}

func (b *bull) victim(_ context.Context, crew []*proctest.Process) (*proctest.Process, error) {
	return crew[0], nil
}
