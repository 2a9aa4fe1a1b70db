package envoytest

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	types "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	reference "github.com/envoyproxy/ratelimit/src/config"
	"github.com/envoyproxy/ratelimit/src/provider"
	"github.com/envoyproxy/ratelimit/src/redis"
	"github.com/envoyproxy/ratelimit/src/server"
	service "github.com/envoyproxy/ratelimit/src/service"
	"github.com/envoyproxy/ratelimit/src/settings"
	"github.com/envoyproxy/ratelimit/src/stats"
	gostats "github.com/lyft/gostats"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/health"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/penstock-mq/penstock/admission/limiter"
	"github.com/penstock-mq/penstock/internal/kit/redistest"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/server/envoy"
	"github.com/penstock-mq/penstock/queue"
)

// began is in a month of 30 days that ends 13 days later, and a year of 365 that ends in December.
var began = time.Date(2026, 7, 6, 6, 52, 56, 0, time.UTC)

// isJuly tells the code of July 2026 from older code.
var _, isJuly = reflect.TypeFor[reference.YamlDescriptor]().FieldByName("Metadata")

func request(text string) *rls.RateLimitRequest {
	r := &rls.RateLimitRequest{Domain: "d"}
	if more, ok := strings.CutPrefix(text, "in "); ok {
		r.Domain, text, _ = strings.Cut(more, " ")
	}
	if more, ok := strings.CutPrefix(text, "+"); ok {
		number, rest, _ := strings.Cut(more, " ")
		n, _ := strconv.ParseUint(number, 10, 32)
		r.HitsAddend, text = uint32(n), rest
	}
	if text == "none" {
		return r
	}
	for _, text := range strings.Split(text, "; ") {
		d := &common.RateLimitDescriptor{}
		words := strings.Fields(text)
		for len(words) > 2 {
			n, _ := strconv.ParseUint(words[len(words)-1], 10, 64)
			switch words[len(words)-2] {
			case "hits", "back":
				d.HitsAddend = wrapperspb.UInt64(n)
				d.IsNegativeHits = words[len(words)-2] == "back"
			case "limit":
				number, unit, _ := strings.Cut(words[len(words)-1], "/")
				n, _ = strconv.ParseUint(number, 10, 32)
				name := strings.TrimLeft(unit, "0123456789")
				d.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: uint32(n),
					Unit: types.RateLimitUnit(types.RateLimitUnit_value[strings.ToUpper(name)])}
				if m, err := strconv.Atoi(strings.TrimSuffix(unit, name)); err == nil {
					d.Limit.UnitMultiplier = wrapperspb.UInt32(uint32(m))
				}
			}
			words = words[:len(words)-2]
		}
		for _, entry := range strings.Split(strings.Join(words, ""), ",") {
			if key, value, ok := strings.Cut(entry, "="); ok {
				d.Entries = append(d.Entries,
					&common.RateLimitDescriptor_Entry{Key: key, Value: value})
			}
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}

func shown(a *rls.RateLimitResponse, err error) string {
	if err != nil {
		return "error: " + err.Error()
	}
	words := []string{a.OverallCode.String() + ":"}
	for i, s := range a.Statuses {
		if i > 0 {
			words = append(words, "|")
		}
		words = append(words, s.Code.String())
		if l := s.CurrentLimit; l != nil {
			unit := l.Unit.String()
			if m := l.UnitMultiplier; m != nil {
				unit = fmt.Sprint(m.Value, unit)
			}
			words = append(words, fmt.Sprintf("%d/%s", l.RequestsPerUnit, unit), l.Name)
		}
		words = append(words, fmt.Sprint("left ", s.LimitRemaining))
		if reset := s.DurationUntilReset; reset != nil {
			words = append(words, "for "+(time.Duration(reset.Seconds)*time.Second).String())
		}
	}
	for _, h := range a.ResponseHeadersToAdd {
		words = append(words, strings.TrimPrefix(h.Key, "RateLimit-")+"="+h.Value)
	}
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ")
}

// counted has the statistics by name; it is a sink of both.
type counted map[string]uint64

func (c counted) FlushCounter(name string, n uint64) {
	if name, ok := strings.CutPrefix(name, "ratelimit.service.rate_limit."); ok {
		c[name] += n
	}
}
func (counted) FlushGauge(string, uint64)  {}
func (counted) FlushTimer(string, float64) {}

func (c counted) Take(e queue.Event) {
	if e.Type == jet.EventHits {
		c[strings.TrimPrefix(e.Name, envoy.Prefix)+"."+e.Reason] += uint64(e.Value)
	}
}

func (c counted) String() string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if c[name] > 0 {
			words = append(words, fmt.Sprintf("%s=%d", name, c[name]))
		}
	}
	return strings.Join(words, " ")
}

// answers are a line for each request, and the statistics.
func (k kind) answers(ask func(*rls.RateLimitRequest) (*rls.RateLimitResponse, error),
	wait func(time.Duration)) (lines []string) {

	for _, text := range strings.Split(k.asks, "\n") {
		if duration, ok := strings.CutPrefix(text, "wait "); ok {
			d, _ := time.ParseDuration(duration)
			wait(d)
			lines = append(lines, "")
			continue
		}
		lines = append(lines, shown(ask(request(text))))
	}
	return lines
}

func (k kind) file(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(name, []byte("domain: d\ndescriptors:\n"+k.config), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func (k kind) ours(t *testing.T) (lines []string) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(began))
		hits := counted{}
		s, err := envoy.New(envoy.Options{NewLimit: limiter.New(limiter.Options{}).Limit,
			Files: []string{k.file(t)}, Headers: true, Sink: hits})
		if err != nil {
			t.Fatal(err)
		}
		lines = k.answers(func(r *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
			return s.Decide(t.Context(), r)
		}, time.Sleep)
		lines = append(lines, hits.String())
	})
	return lines
}

// peer is envoyproxy/ratelimit's service with a real Redis, its clock and one configuration.
type peer struct {
	redis redis.Client
	now   time.Time
}

func (p *peer) UnixNow() int64 { return p.now.Unix() }

type configured struct{ config reference.RateLimitConfig }

func (c configured) GetConfig() (reference.RateLimitConfig, any) { return c.config, nil }
func (configured) Stop()                                         {}
func (c configured) ConfigUpdateEvent() <-chan provider.ConfigUpdateEvent {
	one := make(chan provider.ConfigUpdateEvent, 1)
	one <- c
	return one
}

// newPeer calls its NewClientImpl, whose signature depends on the version.
func newPeer(t *testing.T) *peer {
	t.Helper()
	logrus.SetLevel(logrus.ErrorLevel)
	args := []any{gostats.NewStore(gostats.NewNullSink(), false), false, "", "tcp", "single",
		redistest.Start(t).Addr(), 1, time.Duration(0), 0, nil, false, nil, time.Minute, "", ""}
	f := reflect.ValueOf(redis.NewClientImpl)
	if f.Type().NumIn() > len(args) {
		args = append(slices.Concat([]any{context.Background()}, args), time.Second, time.Second,
			time.Minute)
	}
	values := make([]reflect.Value, len(args))
	for i, arg := range args {
		if values[i] = reflect.ValueOf(arg); arg == nil {
			values[i] = reflect.Zero(f.Type().In(i))
		}
	}
	client := f.Call(values)[0].Interface().(redis.Client)
	t.Cleanup(func() { client.Close() })
	return &peer{redis: client}
}

var count int

func (p *peer) answers(t *testing.T, k kind) []string {
	t.Helper()
	t.Setenv("LIMIT_RESPONSE_HEADERS_ENABLED", "true")
	hits := counted{}
	store := gostats.NewStore(hits, false)
	manager := stats.NewStatManager(store, settings.Settings{})
	name := k.file(t)
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	config := reference.NewRateLimitConfigImpl([]reference.RateLimitConfigToLoad{{Name: name,
		ConfigYaml: reference.ConfigFileContentToYaml(name, string(text))}}, manager, true)
	count++
	p.now = began
	cache := redis.NewFixedRateLimitCacheImpl(p.redis, nil, p, nil, 0, nil, 0.8,
		fmt.Sprint(count, "."), manager, false)
	s := service.NewService(cache, configured{config}, manager,
		server.NewHealthChecker(health.NewServer(), "ratelimit", false), p, false, false, false)
	lines := k.answers(func(r *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
		return s.ShouldRateLimit(t.Context(), r)
	}, func(d time.Duration) { p.now = p.now.Add(d) })
	store.Flush()
	for name := range hits {
		if strings.HasSuffix(name, ".domain_not_found") {
			delete(hits, name)
		}
	}
	return append(lines, hits.String())
}

// written is a kind as in testdata/answers.txt: their answers, and ours where they differ.
func (k kind) written(ours, theirs []string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "# %s\n", k.name)
	if k.differs != "" {
		fmt.Fprintf(&out, "# differs: %s\n", k.differs)
	}
	out.WriteString(k.config)
	for i, ask := range append(strings.Split(k.asks, "\n"), "hits") {
		fmt.Fprintf(&out, "> %s\n", ask)
		if theirs[i] != "" {
			fmt.Fprintf(&out, "  %s\n", theirs[i])
		}
		if ours[i] != theirs[i] {
			fmt.Fprintf(&out, "! %s\n", ours[i])
		}
	}
	return out.String()
}

// recorded has their answers to kinds, by name, and the texts of testdata/answers.txt.
func recorded(t *testing.T) (theirs map[string][]string, texts map[string]string) {
	t.Helper()
	all, err := os.ReadFile(answersFile)
	if err != nil {
		t.Fatal(err)
	}
	theirs, texts = map[string][]string{}, map[string]string{}
	for text := range strings.SplitSeq(strings.TrimSpace(string(all)), "\n\n") {
		lines := strings.Split(text, "\n")
		name := strings.TrimPrefix(lines[0], "# ")
		texts[name] = text + "\n"
		for _, line := range lines {
			answers := theirs[name]
			if strings.HasPrefix(line, "> ") {
				theirs[name] = append(answers, "")
			} else if answer, ok := strings.CutPrefix(line, "  "); ok && len(answers) > 0 {
				answers[len(answers)-1] = answer
			}
		}
	}
	return theirs, texts
}

const answersFile = "testdata/answers.txt"

var record = flag.Bool("record", false, "write "+answersFile)

// The table has the answers of envoyproxy/ratelimit's code of July 2026, f2fb15770f7f.
// scripts/envoy-answers compares it with a checkout, or writes it. The module that the Go proxy has
// is older, and is compared with in the cases that it decides in the same way.
func TestAnswersAreThoseOfTheReference(t *testing.T) {
	if len(kindsOfCase) < 74 {
		t.Errorf("there are %d kinds of case", len(kindsOfCase))
	}
	var known map[string][]string
	var texts map[string]string
	if !*record {
		known, texts = recorded(t)
	} else if !isJuly {
		t.Fatal("-record needs the code of July 2026")
	}
	documented, err := os.ReadFile("../../docs/tools.md")
	if err != nil {
		t.Fatal(err)
	}
	peer, compared := newPeer(t), 0
	var all []string
	for _, k := range kindsOfCase {
		t.Run(k.name, func(t *testing.T) {
			ours, theirs := k.ours(t), known[k.name]
			if isJuly || !k.july {
				compared++
				theirs = peer.answers(t, k)
			}
			if len(theirs) != len(ours) {
				t.Fatalf("the table has %q", theirs)
			}
			if same := slices.Equal(ours, theirs); same == (k.differs != "") {
				t.Errorf("%q\nthey: %q", ours, theirs)
			}
			if !strings.Contains(string(documented), "\n| "+k.differs) {
				t.Errorf("docs/tools.md does not list the difference %s", k.differs)
			}
			text := k.written(ours, theirs)
			if all = append(all, text); !*record && text != texts[k.name] {
				t.Errorf("answers:\n%swant:\n%s", text, texts[k.name])
			}
		})
	}
	if len(texts) != len(kindsOfCase) && !*record {
		t.Errorf("%d kinds are in the table, want %d", len(texts), len(kindsOfCase))
	}
	t.Logf("%d of %d kinds were decided by their code", compared, len(kindsOfCase))
	if *record {
		if err := os.WriteFile(answersFile, []byte(strings.Join(all, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
