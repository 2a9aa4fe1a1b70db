package envoy_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	kinds "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/admission/limiter"
	"github.com/penstock-mq/penstock/admission/limiter/inredis"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/kit/redistest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/server/envoy"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

const edge = `
domain: edge
descriptors:
- {key: ip, rate_limit: {unit: year, requests_per_unit: 3, name: per-ip}}
- {key: vip, rate_limit: {unlimited: true, replaces: [{name: per-ip}]}}
- {key: tried, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
- {key: closed, rate_limit: {unit: minute, requests_per_unit: 0}}
- key: path
  value: /files/*
  share_threshold: true
  rate_limit: {unit: year, requests_per_unit: 2, name: files}
- {key: tokens, rate_limit: {unit: year, requests_per_unit: 1000}}
- {key: plan, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
`

type told struct {
	mu     sync.Mutex
	counts map[string]int
	hits   map[string]int64 // by name and statistic
	names  []string
}

func (o *told) count(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.counts[what]++
}

func (o *told) Take(e queue.Event) {
	yes := e.Value > 0
	switch e.Type {
	case jet.EventGateways:
		o.names, _ = e.Data.([]string)
	case jet.EventChecked:
		o.count(e.Policy + map[bool]string{true: " allowed", false: " refused"}[yes])
	case jet.EventHits:
		o.mu.Lock()
		defer o.mu.Unlock()
		o.hits[e.Name+" "+e.Reason] += e.Value
	case jet.EventShadowed:
		o.count(e.Policy + map[bool]string{true: " over", false: " within"}[yes])
	}
}

func serve(t *testing.T, o envoy.Options, text string) (*envoy.Service, string, *told) {
	t.Helper()
	heard := &told{counts: map[string]int{}, hits: map[string]int64{}}
	if o.Sink = heard; o.NewLimit == nil {
		o.NewLimit = limiter.New(limiter.Options{}).Limit
	}
	file := write(t, t.TempDir(), "edge.yaml", text)
	o.Files = []string{file}
	s, err := envoy.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s, file, heard
}

type (
	descriptor = common.RateLimitDescriptor
	override   = common.RateLimitDescriptor_RateLimitOverride
)

func of(key, value string) *descriptor {
	return &descriptor{Entries: []*envoy.Entry{{Key: key, Value: value}}}
}

func hits(n uint64, d *descriptor) *descriptor {
	return &descriptor{Entries: d.Entries, IsNegativeHits: d.IsNegativeHits,
		HitsAddend: wrapperspb.UInt64(n)}
}

func decide(ctx context.Context, s *envoy.Service, n uint32, d ...*descriptor) (
	*ratelimit.RateLimitResponse, error) {
	return s.Decide(ctx,
		&ratelimit.RateLimitRequest{Domain: "edge", Descriptors: d, HitsAddend: n})
}

const over = ratelimit.RateLimitResponse_OVER_LIMIT

// asking returns a function that expects these remaining units for each descriptor; −1: over the
// limit, −2: no limit.
func asking(t *testing.T, s *envoy.Service) func(n uint32, want []int64, d ...*descriptor) {
	return func(n uint32, want []int64, d ...*descriptor) {
		t.Helper()
		a, err := decide(t.Context(), s, n, d...)
		if err != nil {
			t.Fatal(err)
		}
		var got []int64
		for _, status := range a.Statuses {
			switch {
			case status.Code == over:
				got = append(got, -1)
			case status.CurrentLimit == nil && status.LimitRemaining == 0:
				got = append(got, -2)
			default:
				got = append(got, int64(status.LimitRemaining))
			}
			reset := status.DurationUntilReset.AsDuration()
			if l := status.CurrentLimit; l != nil && (reset <= 0 || reset > envoy.Window(l)) {
				t.Errorf("the window of %v ends in %s", l, reset)
			}
		}
		if !slices.Equal(got, want) || (a.OverallCode == over) != slices.Contains(want, -1) {
			t.Errorf("%v: %v, %v; want %v", d, got, a.OverallCode, want)
		}
	}
}

func testDecisions(t *testing.T, o envoy.Options) {
	s, _, heard := serve(t, o, edge)
	ask := asking(t, s)
	a, b := of("ip", "a"), of("ip", "é ✓")
	ask(0, []int64{2}, a)
	ask(1, []int64{1}, a)
	ask(1, []int64{2}, b)
	ask(1, []int64{-2, -2, -2}, of("unknown", "a"), of("", ""), &descriptor{})

	// Each descriptor counts separately, even if another one is refused; the strictest decides.
	ask(2, []int64{-1, 0}, a, b)
	ask(1, []int64{-1, -1}, a, b)

	// A descriptor's hits override the request's; 0 only peeks.
	ask(9, []int64{2}, hits(1, of("ip", "c")))
	ask(9, []int64{2}, hits(0, of("ip", "c")))
	ask(9, []int64{0}, hits(2, of("ip", "c")))
	ask(9, []int64{-1}, hits(0, of("ip", "c")))

	// Hits that can never fit use up the rest.
	ask(1, []int64{-1}, hits(math.MaxUint64, of("tokens", "k")))
	ask(1, []int64{-1}, hits(0, of("tokens", "k")))
	ask(600, []int64{400}, of("tokens", "l"))
	ask(600, []int64{-1}, of("tokens", "l"))
	ask(1, []int64{-1}, of("tokens", "l"))
	ask(math.MaxUint32, []int64{-1}, of("tokens", "m"))

	back := of("tokens", "l")
	back.IsNegativeHits = true
	ask(300, []int64{300}, back)
	ask(1, []int64{299}, of("tokens", "l"))
	nothing := hits(0, back)
	ask(1, []int64{299}, nothing)
	ask(math.MaxUint32, []int64{1000}, back)

	ask(1, []int64{math.MaxUint32}, of("vip", "x"))
	ask(1, []int64{-2, math.MaxUint32}, a, of("vip", "x"))
	ask(1, []int64{1, -2, math.MaxUint32}, of("path", "/files/1"), a, of("vip", "x"))
	ask(1, []int64{0}, of("path", "/files/2"))
	ask(1, []int64{-1}, of("path", "/files/"))
	ask(1, []int64{-2}, of("path", "/other"))
	ask(0, []int64{-1}, of("closed", ""))
	ask(0, []int64{-1}, hits(0, of("closed", "")))

	ask(1, []int64{0}, of("tried", "x"))
	ask(1, []int64{0}, of("tried", "x"))

	own := of("any", "thing")
	own.Limit = &override{RequestsPerUnit: 2, Unit: 6}
	ask(1, []int64{1}, own)
	ask(1, []int64{0}, own)
	ask(1, []int64{-1}, own)
	other := of("any", "other")
	other.Limit = own.Limit
	ask(1, []int64{1}, other)
	for _, n := range []uint32{4, 5} { // another window, with its own count
		own.Limit = &override{RequestsPerUnit: 1, Unit: 7, UnitMultiplier: wrapperspb.UInt32(n)}
		ask(1, []int64{0}, own)
		ask(1, []int64{-1}, own)
	}
	none, err := s.Decide(t.Context(), &ratelimit.RateLimitRequest{Domain: "elsewhere",
		Descriptors: []*descriptor{own}})
	if err != nil || none.OverallCode == over || none.Statuses[0].CurrentLimit != nil {
		t.Errorf("an unknown domain: %v, %v", none, err)
	}

	heard.mu.Lock()
	defer heard.mu.Unlock()
	if want := []string{"envoy.edge.ip", "envoy.edge.vip", "envoy.edge.tried", "envoy.edge.closed",
		"envoy.edge.path_/files/*", "envoy.edge.tokens",
		"envoy.edge.plan"}; !slices.Equal(heard.names, want) {
		t.Errorf("the limits are %q", heard.names)
	}
	for what, want := range map[string]int{"envoy.edge.tried allowed": 2,
		"envoy.edge.tried within": 1, "envoy.edge.tried over": 1, "envoy.edge.closed refused": 2,
		"envoy.edge.path_/files/* refused": 1, "envoy.edge.:2/year allowed": 3,
		"envoy.edge.:2/year refused": 1, "envoy.edge.:1/4week refused": 1,
		"envoy.edge.vip allowed": 0} {
		if heard.counts[what] != want {
			t.Errorf("%s: %d, want %d", what, heard.counts[what], want)
		}
	}
}

func TestDecisionsInMemory(t *testing.T) { testDecisions(t, envoy.Options{}) }

func TestDecisionsInRedis(t *testing.T) {
	rdb := redistest.Start(t).Client()
	factory := limiter.New(limiter.Options{
		Shared: inredis.New(rdb, inredis.Options{Timeout: waittest.Patience()})})
	testDecisions(t, envoy.Options{NewLimit: factory.Limit, Shared: true})
}

func TestBadRequestsAreRefused(t *testing.T) {
	s, _, _ := serve(t, envoy.Options{}, edge)
	unit := of("ip", "a")
	unit.Limit = &override{RequestsPerUnit: 1, Unit: 99}
	const wrong = "limit: the unit_multiplier must be at least 1, and a window at most 366 days"
	for u, n := range map[kinds.RateLimitUnit]uint32{1: 0, 4: 367, 6: 2, 7: math.MaxUint32} {
		long := &descriptor{Limit: &override{RequestsPerUnit: 1, Unit: u,
			UnitMultiplier: wrapperspb.UInt32(n)}}
		_, err := decide(t.Context(), s, 1, long)
		if err == nil || err.Error() != wrong {
			t.Errorf("%d × %s: %v, want %s", n, u, err, wrong)
		}
	}
	for want, r := range map[string]*ratelimit.RateLimitRequest{
		"domain: must not be empty":      {Descriptors: []*descriptor{of("ip", "a")}},
		"descriptors: must not be empty": {Domain: "edge"},
		"descriptors: must have at most 256 entries": {Domain: "edge",
			Descriptors: make([]*descriptor, 257)},
		"limit: the unit is unknown": {Domain: "edge", Descriptors: []*descriptor{unit}},
	} {
		_, err := s.Decide(t.Context(), r)
		bad, ok := errors.AsType[*admission.RequestError](err)
		if !ok || bad.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	var err error
	for n := range uint32(1001) {
		unit.Limit = &override{RequestsPerUnit: n, Unit: 6}
		_, err = decide(t.Context(), s, 1, unit)
	}
	if err == nil || !strings.Contains(err.Error(), "1000 different limits") {
		t.Error(err)
	}
}

// A changed file keeps the counts; an invalid one changes no limit.
func TestFilesAreReadAgain(t *testing.T) {
	s, file, heard := serve(t, envoy.Options{}, edge)
	ask := asking(t, s)
	a := of("ip", "a")
	ask(2, []int64{1}, a)
	ask(500, []int64{500}, of("tokens", "k"))
	change := func(text string) error {
		t.Helper()
		write(t, "", file, text)
		return s.Reload()
	}
	if err := change("domain: edge\ndescriptors:\n- {key: ip, rate_limit: {unit: eon}}\n"); err ==
		nil || !strings.Contains(err.Error(), file+":3: descriptors[0].rate_limit.unit") {
		t.Errorf("a bad file: %v", err)
	}
	ask(1, []int64{0}, a)
	if err := change("domain: edge\ndescriptors:\n" +
		"- {key: ip, rate_limit: {unit: year, requests_per_unit: 10}}\n" +
		"- {key: tokens, rate_limit: {unit: month, requests_per_unit: 1000}}\n"); err != nil {
		t.Fatal(err)
	}
	ask(1, []int64{6}, a)
	ask(1, []int64{999}, of("tokens", "k"))
	ask(1, []int64{-2}, of("vip", "a"))
	if !slices.Equal(heard.names, []string{"envoy.edge.ip", "envoy.edge.tokens"}) {
		t.Errorf("the limits are %q", heard.names)
	}
}

// between runs a function before each decision.
type between struct {
	admission.Limiter
	do func()
}

func (b *between) Take(ctx context.Context, from admission.Caller, n int64) (admission.Checked,
	error) {
	b.do()
	return b.Limiter.Take(ctx, from, n)
}

// Files are read while requests are decided.
func TestNoRequestFailsBecauseOfAReload(t *testing.T) {
	factory := limiter.New(limiter.Options{})
	reading, deciding := func() {}, func() {}
	s, file, _ := serve(t, envoy.Options{NewLimit: func(p policy.Policy,
		previous admission.Limiter) (admission.Limit, error) {
		reading()
		if before, ok := previous.(*between); ok {
			previous = before.Limiter
		}
		made, err := factory.Limit(p, previous)
		made.Limiter = &between{made.Limiter, func() { deciding() }}
		return made, err
	}}, edge)
	deciding = func() {
		deciding = func() {}
		write(t, "", file, strings.ReplaceAll(edge, "1000", "500"))
		if err := s.Reload(); err != nil {
			t.Error(err)
		}
	}
	asking(t, s)(600, []int64{-1}, of("tokens", "k")) // of the 1000 of before

	own := of("any", "thing")
	own.Limit = &override{RequestsPerUnit: 2, Unit: 6}
	reading = func() {
		reading = func() {}
		answered := make(chan error, 1)
		go func() {
			_, err := decide(t.Context(), s, 1, own)
			answered <- err
		}()
		select {
		case err := <-answered:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(waittest.Patience()):
			t.Error("a request with its own limit waits until the files are read")
		}
	}
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
}

func TestTheTightestLimitIsReported(t *testing.T) {
	s, _, _ := serve(t, envoy.Options{Headers: true}, edge)
	for _, c := range []struct {
		of   []*descriptor
		want string // limit and rest
	}{
		{[]*descriptor{of("unknown", ""), of("vip", "")}, ""},
		{[]*descriptor{of("tokens", "a"), of("ip", "a"), of("path", "/files/")}, "2 1"},
		{[]*descriptor{of("ip", "b"), of("closed", ""), of("tried", "b")}, "0 0"},
		{[]*descriptor{of("plan", "a"), of("closed", ""), of("plan", "b")}, "0 0"},
		{[]*descriptor{of("plan", "a"), of("ip", "c")}, "1 0"},
	} {
		a, err := decide(t.Context(), s, 1, c.of...)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, h := range a.ResponseHeadersToAdd {
			if h.Key != "RateLimit-Reset" {
				got = append(got, h.Value)
			}
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%v: %q is tightest, want %q", c.of, text, c.want)
		}
	}
}

// Without its store a request fails, passes or is decided by a share, as the options say. Shadow
// limits cause no failure.
func TestWithoutTheStore(t *testing.T) {
	for mode, want := range map[policy.OnStoreError]string{policy.Closed: "error", "": "error",
		policy.Open: "allowed allowed", policy.Local: "allowed refused"} {
		server := redistest.Start(t)
		factory := limiter.New(limiter.Options{
			Shared: inredis.New(server.Client(), inredis.Options{Timeout: 200 * time.Millisecond})})
		s, _, _ := serve(t, envoy.Options{NewLimit: factory.Limit, Shared: true,
			OnStoreError: mode}, edge)
		server.Stop()
		var got []string
		for range 2 {
			a, err := decide(context.Background(), s, 3, of("ip", "a"), of("tokens", "a"))
			if err != nil {
				if !errors.Is(err, admit.ErrStore) {
					t.Error(err)
				}
				got = []string{"error"}
				continue
			}
			word := "allowed"
			if a.OverallCode == over {
				word = "refused"
			}
			got = append(got, word)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %q, want %s", mode, got, want)
		}
		a, err := decide(t.Context(), s, 5, of("tried", "a"))
		if err != nil || a.OverallCode == over {
			t.Errorf("%q, shadow: %v, %v", mode, a, err)
		}
	}
}
