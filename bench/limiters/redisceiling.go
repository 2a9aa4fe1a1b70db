package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"net"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ceiling is the rate of Redis when a C client only sends an algorithm's commands.
type ceiling struct {
	algorithm string
	replays   []*replay
}

type replay struct {
	command   scriptCall
	pipeline  int // commands in flight per connection
	perSecond []float64
	times     int
}

var pipelines = []int{1, 16}

// pilot commands estimate the duration
const pilot = 16 * callers

// ceilings records each algorithm's call for one key, and for the mean number of keys in a call
// under load.
func (b *bench) ceilings(ctx context.Context, server *redisServer,
	all []contestant) ([]*ceiling, error) {
	var made []*ceiling
	for _, c := range all {
		if !c.ours {
			continue
		}
		b.say("redis: record the calls of a %s", c.algorithm)
		one, many, err := b.record(ctx, server, c)
		if err != nil {
			return nil, fmt.Errorf("record %s: %w", c.algorithm, err)
		}
		made = append(made, newCeiling(c.algorithm, one, many))
	}
	return made, nil
}

func newCeiling(algorithm string, commands ...scriptCall) *ceiling {
	c := &ceiling{algorithm: algorithm}
	for _, command := range commands {
		for _, pipeline := range pipelines {
			c.replays = append(c.replays, &replay{command: command, pipeline: pipeline})
		}
	}
	return c
}

// record listens to the server under one caller and under all. Listening slows Redis, so the number
// of keys in a call is measured before.
func (b *bench) record(ctx context.Context, server *redisServer,
	c contestant) (one, many scriptCall, err error) {
	set := redisKeySets[0].keySet
	alone, err := b.serve(ctx, server, c, set)
	if err != nil {
		return one, many, err
	}
	if err := server.reset(ctx); err != nil {
		return one, many, err
	}
	l, err := c.open(set.keys)
	if err != nil {
		return one, many, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	first, err := server.listen(ctx, func() error { return askInTurn(ctx, l, set.names(1)) })
	if err != nil {
		return one, many, err
	}
	rest, err := server.listen(ctx, func() error {
		_, err := load(ctx, l, set.names(1), b.length)
		return err
	})
	if err != nil {
		return one, many, err
	}
	if one, err = nearest(first, 1); err == nil {
		many, err = nearest(rest, alone.perCall)
	}
	return one, many, err
}

func askInTurn(ctx context.Context, l openLimiter, names []string) error {
	for _, name := range names[:10] {
		if err := l.decide(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (s *redisServer) listen(ctx context.Context, do func() error) (calls []scriptCall, err error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return nil, fmt.Errorf("listen to redis-server: %w", err)
	}
	lines := bufio.NewReader(conn)
	if _, err = conn.Write([]byte("MONITOR\r\n")); err == nil {
		_, err = lines.ReadString('\n')
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen to redis-server: %w", err), conn.Close())
	}
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		for {
			line, err := lines.ReadString('\n')
			if err != nil || strings.Contains(line, lastWord) {
				return
			}
			if call, ok := parseCall(line); ok {
				calls = append(calls, call)
			}
		}
	}()
	err = do()
	if err == nil {
		err = s.rdb.Echo(ctx, lastWord).Err()
	}
	if err == nil {
		err = conn.SetReadDeadline(time.Now().Add(patience))
	}
	if err != nil {
		err = errors.Join(err, conn.Close())
		<-heard
		return nil, err
	}
	<-heard
	return calls, conn.Close()
}

const lastWord = "penstock-limiters-recorded-this"

// scriptCall is EVALSHA hash number-of-keys key … argument …
type scriptCall struct {
	words []string
	keys  int
}

func parseCall(line string) (scriptCall, bool) {
	_, text, ok := strings.Cut(line, "] ")
	if !ok {
		return scriptCall{}, false
	}
	var words []string
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimPrefix(text, " ") {
		quoted, err := strconv.QuotedPrefix(text)
		if err != nil {
			return scriptCall{}, false
		}
		word, err := strconv.Unquote(quoted)
		if err != nil {
			return scriptCall{}, false
		}
		words, text = append(words, word), text[len(quoted):]
	}
	if len(words) < 3 || !strings.EqualFold(words[0], "evalsha") {
		return scriptCall{}, false
	}
	keys, err := strconv.Atoi(words[2])
	return scriptCall{words, keys}, err == nil && keys > 0 && len(words) >= 3+keys
}

func nearest(calls []scriptCall, keys float64) (scriptCall, error) {
	if len(calls) == 0 {
		return scriptCall{}, errors.New("no script was called")
	}
	return slices.MinFunc(calls, func(a, b scriptCall) int {
		return cmp.Compare(math.Abs(float64(a.keys)-keys), math.Abs(float64(b.keys)-keys))
	}), nil
}

var keyName = regexp.MustCompile(`key-[0-9]+`)

// randomized has keys that redis-benchmark replaces, and no deadline.
func (c scriptCall) randomized() []string {
	words := slices.Clone(c.words)
	for i := 3; i < 3+c.keys; i++ {
		words[i] = keyName.ReplaceAllString(words[i], "key-__rand_int__")
	}
	if at := 3 + c.keys; at < len(words) && strings.HasPrefix(words[at], "<") {
		words[at] = ""
	}
	return words
}

func (c *ceiling) measure(ctx context.Context, server *redisServer, length time.Duration) error {
	if err := server.reset(ctx); err != nil {
		return err
	}
	for _, r := range c.replays {
		if r.times == 0 {
			rate, err := r.run(ctx, server, pilot)
			if err != nil {
				return err
			}
			r.times = max(pilot, int(rate*length.Seconds()))
		}
		rate, err := r.run(ctx, server, r.times)
		if err != nil {
			return err
		}
		r.perSecond = append(r.perSecond, rate*float64(r.command.keys))
	}
	return nil
}

func (r *replay) run(ctx context.Context, server *redisServer, times int) (float64, error) {
	host, port, err := net.SplitHostPort(server.Addr())
	if err != nil {
		return 0, fmt.Errorf("redis-benchmark: %w", err)
	}
	args := []string{"-h", host, "-p", port, "-c", strconv.Itoa(callers), "-P",
		strconv.Itoa(r.pipeline),
		"-n", strconv.Itoa(times), "-r", strconv.Itoa(redisKeySets[0].keys), "--csv"}
	cmd := exec.CommandContext(ctx, "redis-benchmark", append(args, r.command.randomized()...)...)
	out, err := cmd.Output()
	var failed *exec.ExitError
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return 0, fmt.Errorf("install redis-tools: %w", err)
	case errors.As(err, &failed):
		return 0, fmt.Errorf("redis-benchmark: %w: %s", err,
			strings.TrimSpace(string(failed.Stderr)))
	case err != nil:
		return 0, fmt.Errorf("redis-benchmark: %w", err)
	}
	return parseRate(string(out))
}

func parseRate(text string) (float64, error) {
	lines, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		return 0, fmt.Errorf("redis-benchmark printed %q: %w", text, err)
	}
	if len(lines) != 2 || len(lines[1]) < 2 || lines[0][1] != "rps" {
		return 0, fmt.Errorf("redis-benchmark printed %q: no line of requests per second", text)
	}
	rate, err := strconv.ParseFloat(lines[1][1], 64)
	if err != nil {
		return 0, fmt.Errorf("redis-benchmark printed %q: %w", text, err)
	}
	return rate, nil
}
