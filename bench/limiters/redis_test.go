package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func testServer(t *testing.T) *redisServer {
	t.Helper()
	server, err := startRedis()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.stop(); err != nil {
			t.Error(err)
		}
	})
	return server
}

func TestEachContestantAllowsInRedis(t *testing.T) {
	server := testServer(t)
	b := &bench{options{length: 5 * time.Millisecond}}
	for _, c := range redisContestants(server.Addr()) {
		for _, set := range redisKeySets {
			s, err := b.serve(t.Context(), server, c, set.keySet)
			if err != nil {
				t.Errorf("%s, %s, %s: %v", c.name, c.algorithm, set.title, err)
				continue
			}
			if s.perSecond <= 0 || s.p50 <= 0 || s.p99 < s.p50 || s.perCall < 1 {
				t.Errorf("%s, %s, %s: %+v", c.name, c.algorithm, set.title, s)
			}
			if !c.ours && s.perCall != 1 {
				t.Errorf("%s decides %v times a call, so the calls are not counted as they should",
					c.name, s.perCall)
			}
		}
	}
}

func TestAFailureEndsTheLoad(t *testing.T) {
	broken := errors.New("broken")
	l := openLimiter{decide: func(ctx context.Context, key string) error {
		if key == "key-00003" {
			return broken
		}
		return ctx.Err()
	}}
	if _, err := load(t.Context(), l, keySet{keys: 10}.names(1), time.Hour); !errors.Is(err,
		broken) {
		t.Errorf("%v, want %v", err, broken)
	}
}

func TestFloodIsRefused(t *testing.T) {
	server := testServer(t)
	b := &bench{options{length: 5 * time.Millisecond}}
	for _, c := range floodContestants(server.Addr()) {
		f, err := b.floodOne(t.Context(), server, c)
		if err != nil || f.refusals == 0 || f.calls == 0 {
			t.Errorf("%s, %s: %+v, %v", c.name, c.algorithm, f, err)
		}
	}
}

func TestKeysAreWeighed(t *testing.T) {
	server := testServer(t)
	for _, h := range holders(server.Addr()) {
		h.keys = 100
		w, err := weighOne(t.Context(), server, h)
		if err != nil {
			t.Errorf("%s, %s: %v", h.name, h.algorithm, err)
			continue
		}
		if w.name != float64(len(w.example)) || w.usage <= w.name || w.used <= w.name {
			t.Errorf("%s, %s: %+v", h.name, h.algorithm, w)
		}
	}
}

func TestARecordingIsReplayed(t *testing.T) {
	server := testServer(t)
	b := &bench{options{length: 200 * time.Millisecond}}
	all := redisContestants(server.Addr())
	ceilings, err := b.ceilings(t.Context(), server, all[:1])
	if err != nil {
		t.Fatal(err)
	}
	c := ceilings[0]
	if err := c.measure(t.Context(), server, b.length); err != nil {
		t.Fatal(err)
	}
	if len(ceilings) != 1 || len(c.replays) != 4 || c.replays[0].command.keys != 1 ||
		c.replays[2].command.keys < 2 {
		t.Fatalf("%d algorithms, %d replays", len(ceilings), len(c.replays))
	}
	for _, r := range c.replays {
		if len(r.perSecond) != 1 || r.perSecond[0] <= 0 {
			t.Errorf("%d keys, pipeline of %d: %v", r.command.keys, r.pipeline, r.perSecond)
		}
	}
	keys, _, err := server.memoryUsage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := len(keys); n < 900 || n > 1000 {
		t.Errorf("%d keys were decided on, want nearly 1,000", n)
	}
	for _, key := range keys {
		if !strings.HasPrefix(key, "penstock:{api:key-0") {
			t.Fatalf("%q is no key of Penstock's", key)
		}
	}
	calls, err := server.scriptCalls(t.Context())
	if want := int64(4 * pilot); err != nil || calls < want {
		t.Errorf("%d calls, %v, want at least %d", calls, err, want)
	}
}

func TestAReplayThatFailsIsNotMeasured(t *testing.T) {
	server := testServer(t)
	r := replay{command: scriptCall{[]string{"evalsha", "no-such-script", "1", "key-00000"}, 1},
		pipeline: 1}
	if rate, err := r.run(t.Context(), server, pilot); err == nil ||
		!strings.Contains(err.Error(), "NOSCRIPT") {
		t.Errorf("%v, %v", rate, err)
	}
}

func TestParseCall(t *testing.T) {
	line :=
		`1763769600.123456 [0 127.0.0.1:34567] "evalsha" "abc" "2" "p:{a:key-00012}" "p:{a:\x00\"key-7}" "" "1" "1 2"` + "\r\n"
	call, ok := parseCall(line)
	want := []string{"evalsha", "abc", "2", "p:{a:key-00012}", "p:{a:\x00\"key-7}", "", "1", "1 2"}
	if !ok || call.keys != 2 || !slices.Equal(call.words, want) {
		t.Errorf("%+v, %v, want %q", call, ok, want)
	}
	got := call.randomized()
	if got[3] != "p:{a:key-__rand_int__}" || got[4] != "p:{a:\x00\"key-__rand_int__}" ||
		!slices.Equal(got[5:], want[5:]) {
		t.Errorf("%q", got)
	}
	if call.words[3] != want[3] {
		t.Error("the call itself was changed")
	}
	for _, line := range []string{
		"+OK\r\n", "",
		`1763769600.123456 [0 lua] "GET" "key-00012"`,
		`1763769600.123456 [0 127.0.0.1:34567] "evalsha" "abc" "2" "one"`,
		`1763769600.123456 [0 127.0.0.1:34567] "evalsha" "abc" "none"`,
		`1763769600.123456 [0 127.0.0.1:34567] "evalsha" "abc`,
	} {
		if call, ok := parseCall(line); ok {
			t.Errorf("%q is %+v", line, call)
		}
	}
}

func TestNearest(t *testing.T) {
	calls := []scriptCall{{keys: 3}, {keys: 12}, {keys: 20}, {keys: 64}}
	for want, keys := range map[int]float64{3: 1, 12: 15.9, 20: 16.1, 64: 1000} {
		if got, err := nearest(calls, keys); err != nil || got.keys != want {
			t.Errorf("nearest to %v: %d keys, %v, want %d", keys, got.keys, err, want)
		}
	}
	if _, err := nearest(nil, 1); err == nil {
		t.Error("no calls, and no error")
	}
}

func TestParseRate(t *testing.T) {
	const head = `"test","rps","avg_latency_ms"` + "\n"
	if rate, err := parseRate(head + `"evalsha a 1 b  1 2","66773.33","13.554"` + "\n"); err !=
		nil || rate != 66773.33 {
		t.Errorf("%v, %v", rate, err)
	}
	for _, text := range []string{"", head, head + `"evalsha","fast","1"`, "a,b,c\n1,2,3\n", `"`} {
		if rate, err := parseRate(text); err == nil {
			t.Errorf("%q is %v", text, rate)
		}
	}
}

func TestCallsOf(t *testing.T) {
	stats := parseInfo(
		"# Commandstats\r\ncmdstat_evalsha:calls=5072,usec=31952,usec_per_call=6.30\r\n" +
			"cmdstat_eval:calls=3,usec=9,usec_per_call=3.00\r\ncmdstat_get:calls=100,usec=1," +
			"usec_per_call=0.01\r\n")
	if n, err := callsOf(stats, "eval", "evalsha"); err != nil || n != 5075 {
		t.Errorf("%d, %v, want 5075", n, err)
	}
	if n, err := callsOf(stats, "ping"); err != nil || n != 0 {
		t.Errorf("%d, %v of a command that nobody called", n, err)
	}
	if _, err := callsOf(map[string]string{"cmdstat_get": "what=1"}, "get"); err == nil {
		t.Error("no calls, and no error")
	}
}
