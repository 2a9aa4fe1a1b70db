package job

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/queue"
)

func TestHeaders(t *testing.T) {
	stored := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	parse := func(h nats.Header) Arrived {
		a := Arrived{Stored: stored}
		a.ReadHeader(h)
		return a
	}
	t.Run("none", func(t *testing.T) {
		if a := parse(nil); a.Cost != 1 || a.Priority != 0 || !a.Deadline.IsZero() ||
			!a.NotBefore.IsZero() || a.Malformed != nil {
			t.Errorf("got %+v", a)
		}
	})
	t.Run("all, in any case", func(t *testing.T) {
		a := parse(nats.Header{
			"penstock-v": {"1"}, "PENSTOCK-DEADLINE": {"1d12h"},
			"Penstock-Not-before": {"2026-03-01T13:00:00+01:00"},
			"Penstock-Cost":       {" 7 "}, "Penstock-Priority": {"-9"}, "Penstock-Method": {"PUT"},
			"Penstock-Path":             {"/v1/x?y=1"},
			"Penstock-Forward-X-Tenant": {"a", "b"}, "Penstock-Of-The-Future": {"x"},
			"Content-Type": {"text/plain"},
		})
		if a.Malformed != nil || a.Cost != 7 || a.Priority != -9 ||
			!a.Deadline.Equal(stored.Add(36*time.Hour)) ||
			!a.NotBefore.Equal(stored) {
			t.Errorf("got %+v", a)
		}
	})
	for name, values := range map[string][]string{
		"Penstock-V":          {"2", "", "x"},
		"Penstock-Deadline":   {"", "0s", "-1s", "5", "tomorrow", "2026-03-01", "1y"},
		"Penstock-Not-Before": {"-1s", "x"},
		"Penstock-Cost":       {"0", "-1", "1.5", "1000001", "x", ""},
		"Penstock-Priority":   {"10", "-10", "high"},
		"Penstock-Method":     {"", "GET /", "G\x00"},
		"Penstock-Path": {"", "x", "/a b", "http://x/", "/%zz", "//host/x", "//", "//?x",
			"//user@/x", "/../x", "/a/..", "/./x",
			"/%2e%2E/x", "/a%2f../x", "/\x00"},
		"Penstock-Max-Attempts": {"0", "-1", "1001", "1.5", "many", ""},
		"Penstock-Timeout":      {"0s", "-1s", "30", "2031-01-31T12:00:00Z", ""},
		"Penstock-Retention":    {"-1s", "30", "forever", ""},
		"Penstock-Unique":       {"", "a b", ";replace", "a;keep", "a; replace; replace"},
		"Penstock-Tag": {"", "a b", "a,", "ü", "a\x00", strings.Repeat("x", maxTag+1),
			"1,2,3,4,5,6,7,8,9"},
		"Penstock-Forward-":    {"x"},
		"Penstock-Forward-a b": {"x"},
	} {
		for _, value := range values {
			if a := parse(nats.Header{name: {value}}); a.Malformed == nil {
				t.Errorf("%s: %q is understood", name, value)
			}
		}
	}
	for _, path := range []string{"/", "/a//b", "/a:b@c", "/a%2Fb?x=1&y=//h/..", "/a..b/...",
		"/%E2%82%AC", "///a"} {
		if a := parse(nats.Header{"Penstock-Path": {path}}); a.Malformed != nil {
			t.Errorf("path %q: %v", path, a.Malformed)
		}
	}
	t.Run("tags, several and with commas", func(t *testing.T) {
		h := nats.Header{"penstock-tag": {"a, b/c:1", "d"}}
		want := []string{"a", "b/c:1", "d"}
		if a := parse(h); a.Malformed != nil || !slices.Equal(Tags(h), want) {
			t.Errorf("%q, %v", Tags(h), a.Malformed)
		}
		two := nats.Header{"Penstock-Tag": {"1,2,3,4,5"}, "penstock-tag": {"6,7,8,9"}}
		if a := parse(two); a.Malformed == nil {
			t.Errorf("%d tags are understood", len(Tags(two)))
		}
	})
	t.Run("an unknown option is quoted", func(t *testing.T) {
		a := parse(nats.Header{"Penstock-Unique": {"a; replac"}})
		if a.Malformed == nil || !strings.Contains(a.Malformed.Error(), `"a; replac"`) {
			t.Errorf("got %v", a.Malformed)
		}
	})
	t.Run("twice", func(t *testing.T) {
		if a := parse(nats.Header{"Penstock-Cost": {"1", "2"}}); a.Malformed == nil {
			t.Error("two values are understood")
		}
		if a := parse(nats.Header{"Penstock-Cost": {"1"}, "penstock-cost": {"2"}}); a.Malformed ==
			nil {
			t.Error("two spellings are understood")
		}
	})
	t.Run("a strange subject stays the reason", func(t *testing.T) {
		a := Arrived{Stored: stored, Malformed: queue.ErrInvalidKey}
		a.ReadHeader(nats.Header{"Penstock-Cost": {"x"}})
		if !errors.Is(a.Malformed, queue.ErrInvalidKey) {
			t.Errorf("got %v", a.Malformed)
		}
	})
}

func TestUsedCostsHaveNamesOfCosts(t *testing.T) {
	used := ReadUsed(map[string][]string{"Penstock-Used-Tokens": {"7"}, "Penstock-Used-": {"1"},
		"Penstock-Used-" + strings.Repeat("x", 500_000): {"1"}})
	if len(used) != 1 || used["tokens"] != 7 {
		t.Errorf("%d costs: %.200v", len(used), used)
	}
}

func TestAnIDIsReadAsItIsSpelled(t *testing.T) {
	for id, want := range map[string]uint64{"stripe:42": 42, ":7": 7,
		"a-b:18446744073709551615": 1<<64 - 1} {
		policy, seq, ok := ParseID(id)
		if !ok || seq != want || ID(policy, seq) != id {
			t.Errorf("%s: %q, %d, %t", id, policy, seq, ok)
		}
	}
	for _, id := range []string{"", "stripe", "stripe:", "stripe:x", "stripe:-1", "stripe:1:2",
		"a:18446744073709551616"} {
		if policy, seq, ok := ParseID(id); ok {
			t.Errorf("%s is read as %s, %d", id, policy, seq)
		}
	}
}
