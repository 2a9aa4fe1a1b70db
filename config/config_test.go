package config_test

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/config"
	"github.com/penstock-mq/penstock/internal/admission/schedules"
	"github.com/penstock-mq/penstock/policy"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Tests must not depend on the developer's environment.
func TestMain(m *testing.M) {
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "PENSTOCK_") {
			os.Unsetenv(name)
		}
	}
	os.Exit(m.Run())
}

func ExampleLoad() {
	file := strings.NewReader(`
nats: {url: nats://nats.example:4222, replicas: 3}
policies:
  - {name: stripe, algorithm: leaking_bucket, outflow: 96/s, capacity: 5000}
`)
	c, err := config.Load(file, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.NATS.URL, c.Drain.Lease, c.Policies[0].Outflow, c.Policies[0].Capacity)

	_, err = config.Load(strings.NewReader("# staging\nnats: {replica: 3}\ngrace: 30"), nil)
	fmt.Println(err)
	// Output:
	// nats://nats.example:4222 15s 96/s 5000
	// line 2: nats.replica: unknown field; did you mean replicas?
	// line 3: grace: 30: want a duration with a unit, such as 250ms, 30s, 5m, 1d or 1w
}

func TestEmpty(t *testing.T) {
	want := config.Config{
		HTTP: config.HTTP{MaxConnections: 16384, MaxPerClient: 1024, TrustedProxies: []netip.Prefix{
			netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}},
		Envoy: config.Envoy{OnStoreError: "closed"},
		NATS: config.NATS{Prefix: "penstock", Replicas: 1,
			Embedded: config.Embedded{Dir: "./data/nats", Listen: "127.0.0.1:4222",
				Sync: config.Sync{Every: time.Second}}},
		State: config.State{Store: "memory",
			Redis: config.Redis{Addrs: []string{"127.0.0.1:6379"}, Prefix: "penstock",
				Timeout: 50 * time.Millisecond}},
		Drain: config.Drain{Lease: 5 * time.Second},
		Log:   config.Log{Level: "info", Format: "text"},
		Grace: 30 * time.Second,
		Set:   "default",
	}
	for _, text := range []string{"", "# nothing\n", "---\n", "nats:\npolicies:\n", "policies: []",
		"{}"} {
		if got, err := config.Load(strings.NewReader(text), nil); err != nil ||
			!reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %+v, %v", text, got, err)
		}
	}
	if got, err := config.Load(nil, nil); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("no file: got %+v, %v", got, err)
	}
}

func TestFull(t *testing.T) {
	flags := commandLine(t, "--config", "testdata/full.yaml")
	got, err := config.LoadFile(flags)
	if err != nil {
		t.Fatal(err)
	}
	minute, day := policy.Duration(time.Minute), policy.Duration(24*time.Hour)
	target := func(url string) *policy.Target {
		return &policy.Target{HTTP: &policy.HTTPTarget{URL: url}}
	}
	perSecond := func(n int64) algorithms.Rate {
		return algorithms.Rate{Count: n, Per: time.Second}
	}
	want := config.Config{
		HTTP: config.HTTP{Listen: "0.0.0.0:80", LameDuck: 10 * time.Second,
			Tokens: "tokens.yaml",
			TLS:    config.ServerTLS{Cert: "cert.pem", Key: "key.pem", ClientCA: "ca.pem"},
			Hosts:  []string{"penstock.example.com", "*.internal"},
			TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"),
				netip.MustParsePrefix("2001:db8::1/128")},
			MaxConnections: 100, MaxPerClient: 10},
		Envoy: config.Envoy{Listen: ":8081", Files: []string{"edge.yaml", "limits"}, Headers: true,
			OnStoreError: "local"},
		NATS: config.NATS{URL: "nats://a:4222,tls://b.example:4222", Prefix: "staging", Replicas: 3,
			Embedded: config.Embedded{Dir: "/var/lib/penstock", Sync: config.Sync{Always: true},
				MaxStore: 10 * policy.GiB}},
		State: config.State{Store: "redis", Cache: "/var/lib/penstock/policies.json",
			Redis: config.Redis{
				Addrs: []string{"sentinel:26379", "sentinel2:26379"}, Prefix: "p", Master: "limits",
				DB: 2, Username: "penstock",
				Password: "secret", SentinelUsername: "s", SentinelPassword: "t",
				Timeout: 100 * time.Millisecond,
				TLS: config.TLS{Enabled: true, CA: "ca.pem", Cert: "cert.pem", Key: "key.pem",
					ServerName: "redis"}}},
		Drain: config.Drain{Lease: 20 * time.Second, Memory: 2 * policy.GiB,
			Policies: []string{"stripe", "polite"}},
		Targets:     config.Targets{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
		Log:         config.Log{Level: "debug", Format: "json"},
		Grace:       time.Minute,
		Set:         "tenants",
		Prune:       true,
		AllowShrink: true,
		Policies: []policy.Policy{
			policy.Policy{Name: "stripe",
				Rule: policy.Rule{Algorithm: policy.LeakingBucket, Outflow: perSecond(96),
					Capacity: 5000},
				Concurrency: 20, Partitions: 4, Target: target("https://api.stripe.com"),
				MaxJobs: 2_000_000, MaxBytes: policy.GiB,
				Dead: policy.Dead{MaxBytes: 64 * policy.MiB, Bodies: new(bool)}}.WithDefaults(),
			policy.Policy{Name: "post-message",
				Rule: policy.Rule{Algorithm: policy.TokenBucket, Capacity: 2,
					Refill: perSecond(2)},
				OnStoreError: policy.Local}.WithDefaults(),
			policy.Policy{Name: "signup",
				Rule: policy.Rule{Algorithm: policy.FixedWindow, Limit: 10,
					Window: day}}.WithDefaults(),
			policy.Policy{Name: "rewards",
				Rule: policy.Rule{Algorithm: policy.SlidingLog, Limit: 5,
					Window: 7 * day}}.WithDefaults(),
			policy.Policy{Name: "search",
				Rule:   policy.Rule{Algorithm: policy.SlidingCounter, Limit: 100, Window: minute},
				Queue:  &policy.Queue{Capacity: 1000},
				Target: target("http://search")}.WithDefaults(),
			policy.Policy{Name: "polite",
				Rule: policy.Rule{Algorithm: policy.LeakingBucket, Outflow: perSecond(5),
					Capacity: 20},
				Queue: &policy.Queue{Off: true}}.WithDefaults(),
			policy.Policy{Name: "api", Limits: policy.Limits{
				{Name: "per-user", Key: "{key}",
					Rule: policy.Rule{Algorithm: policy.TokenBucket, Capacity: 2,
						Refill: perSecond(2)}},
				{Name: "all", Key: "global",
					Rule: policy.Rule{Algorithm: policy.SlidingCounter, Limit: 10000,
						Window: policy.Duration(time.Second)}},
			}}.WithDefaults(),
		},
		Schedules: []schedules.Entry{
			{Policy: "stripe", Key: "acme", Name: "rates", When: "30 6 * * 1-5",
				Zone: "Europe/Berlin", Body: "{}", Priority: 3, Cost: 2},
			{Policy: "search", When: "@every 90s", Paused: new(true), Headers: map[string]string{
				"Penstock-Tag": "nightly", "Content-Type": "text/plain"}},
		},
	}
	for i, p := range got.Policies {
		got.Policies[i] = p.WithDefaults()
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// Defaults are not part of the file's policies, because another version may have other defaults and
// fields.
func TestPoliciesAreAsTheFileHasThem(t *testing.T) {
	c, err := config.Load(strings.NewReader(
		"policies: [{name: mail, algorithm: leaking_bucket, outflow: 5/s, capacity: 50}]"), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := policy.Policy{Name: "mail", Rule: policy.Rule{Algorithm: policy.LeakingBucket,
		Outflow: algorithms.Rate{Count: 5, Per: time.Second}, Capacity: 50}}
	if len(c.Policies) != 1 || !reflect.DeepEqual(c.Policies[0], want) {
		t.Errorf("got  %+v\nwant %+v", c.Policies, want)
	}
}

// Each file in testdata/bad has its problems, complete and in order, in the file with it.
func TestProblems(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".yaml"), func(t *testing.T) {
			c, err := config.LoadFile(commandLine(t, "--config", name))
			if err == nil {
				t.Fatal("accepted")
			}
			if !reflect.DeepEqual(c, config.Config{}) {
				t.Error("a configuration beside the error")
			}
			golden := strings.TrimSuffix(name, ".yaml") + ".txt"
			if *update {
				if err := os.WriteFile(golden, []byte(err.Error()+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, readErr := os.ReadFile(golden)
			if readErr != nil {
				t.Fatal(readErr)
			}
			if got := err.Error() + "\n"; got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Error("shows a password")
			}
		})
	}
}

func TestLease(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"nats: {url: a, replicas: 1}":                       5 * time.Second,
		"nats: {url: a, replicas: 3}":                       15 * time.Second,
		"{nats: {url: a, replicas: 3}, drain: {lease: 1s}}": time.Second,
	} {
		if c, err := config.Load(strings.NewReader(text), nil); err != nil ||
			c.Drain.Lease != want {
			t.Errorf("%s: got %s, %v", text, c.Drain.Lease, err)
		}
	}
}

func FuzzLoad(f *testing.F) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range append(files, "testdata/full.yaml") {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("a: &a [*a]\n")
	f.Add("nats: {<<: {url: nats://a:4222}}\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := config.Load(strings.NewReader(text), nil)
		if err != nil {
			if err.Error() == "" {
				t.Fatal("an error without a word")
			}
			return
		}
		for _, p := range c.Policies {
			if problems := p.Validate(); len(problems) > 0 {
				t.Fatalf("accepted in spite of %v", problems)
			}
		}
	})
}

func TestATotalOutflowNeedsNoOutflow(t *testing.T) {
	c, err := config.Load(strings.NewReader(
		"policies: [{name: partner, algorithm: leaking_bucket, outflow_total: 100/s, "+
			"capacity: 50}]"), nil)
	if err != nil {
		t.Fatal(err)
	}
	p := c.Policies[0].WithDefaults()
	if p.OutflowTotal.String() != "100/s" || !p.Outflow.IsZero() || p.Partitions != 1 {
		t.Errorf("got %+v", p)
	}
	_, err = config.Load(strings.NewReader(
		"policies: [{name: partner, algorithm: leaking_bucket, outflow_total: 100, capacity: 50, "+
			"partitions: 4}]"), nil)
	if err == nil ||
		!strings.Contains(err.Error(), "line 1: policies[0].outflow_total: 100: want a rate") {
		t.Errorf("got %v", err)
	}
}

// The YAML parser names the line before, or the beginning of the outermost list or mapping.
func TestInvalidYAMLIsReportedWithItsLine(t *testing.T) {
	long := "policies:\n" +
		strings.Repeat("  - {name: a, algorithm: token_bucket, capacity: 2, refill: 1/s}\n", 1000)
	for name, c := range map[string]struct {
		text string
		line int
	}{
		"indentation": {"http:\n  listen: a:1\nnats:\n  prefix: a\n   replicas: 1\n", 5},
		"a tab":       {"http:\n  listen: a:1\nnats:\n\tprefix: a\n", 4},
		"two colons":  {"nats:\n  prefix: a: b\n", 2},
		"no colon":    {"nats:\n  prefix: a\ngrace 30s\nlog: {}\n", 3},
		"no brace":    {"nats:\n  prefix: a\nlog: {level: info\ngrace: 30s\nset: a\n", 3},
		"no quote":    {"grace: 30s\nset: \"a\nprune: true\n", 2},
		"no anchor":   {"grace: 30s\nset: *a\n", 2},
		"far down":    {long + " - {name: b}\n" + long, 1002},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := config.Load(strings.NewReader(c.text), nil)
			if want := fmt.Sprintf("line %d: is not YAML: ", c.line); err == nil ||
				!strings.HasPrefix(err.Error(), want) {
				t.Errorf("got %v, want %s…", err, want)
			}
		})
	}
}

func TestChanged(t *testing.T) {
	load := func(text string) config.Config {
		t.Helper()
		c, err := config.Load(strings.NewReader(text), nil)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	before := load("nats: {embedded: {sync: 2s}}\ndrain: {policies: [a]}\n")
	after := load(
		"nats: {prefix: b, embedded: {sync: always}}\ndrain: {policies: [a, b]}\nprune: true\n" +
			"policies: [{name: a, algorithm: token_bucket, capacity: 2, refill: 1/s}]")
	want := []string{"nats.prefix", "nats.embedded.sync", "drain.policies", "prune"}
	if got := config.Changed(before, after); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	route := "outbound: [{listen: '127.0.0.1:0', routes: [{prefix: /x, upstream: " +
		"'https://api.example.com', policy: pace, key: "
	const pace = "policies: [{name: pace, algorithm: leaking_bucket, outflow: 1/s, capacity: 9}"
	for text, want := range map[string]string{
		route + "b}]}]\n" + pace + "]": "[outbound.routes]",
		route + "a}]}]\n" + pace + "]": "[]",
		pace + "]":                     "[outbound.routes]",
		route + "a}]}]\n" + strings.Replace(pace, "1/s", "2/s", 1) + "]": "[policies]",
	} {
		got := config.ChangedLists(load(route+"a}]}]\n"+pace+"]"), load(text))
		if fmt.Sprint(got) != want {
			t.Errorf("%s: changed lists are %v, want %s", text, got, want)
		}
	}
	if got := config.Changed(before, before); got != nil {
		t.Errorf("nothing changed: got %v", got)
	}
}

// Addresses are compared in IPv4 form, so such a network would never match.
func TestIPv4NetworksInIPv6Form(t *testing.T) {
	c, err := config.LoadFile(commandLine(t, "--targets-allow",
		"::ffff:127.0.0.1,::ffff:10.1.0.0/112,::/0"))
	want := []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"),
		netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("::/0")}
	if err != nil || !slices.Equal(c.Targets.Allow, want) {
		t.Errorf("got %v, %v; want %v", c.Targets.Allow, err, want)
	}
	_, err = config.LoadFile(commandLine(t, "--http-trusted-proxies", "x,10.0.0.1,10.0.0.0/33"))
	for _, wrong := range []string{`[0] (--http-trusted-proxies): "x": want a network`,
		`[2] (--http-trusted-proxies): "10.0.0.0/33": want a network`} {
		if err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%v does not report %s", err, wrong)
		}
	}
	for _, bad := range []string{"fe80::1%eth0", "::ffff:10.0.0.0/64"} {
		if c, err := config.LoadFile(commandLine(t, "--http-trusted-proxies", bad)); err == nil {
			t.Errorf("%s was read as %v", bad, c.HTTP.TrustedProxies)
		}
	}
}

// Others may make the policies later.
func TestNamesThatAreNoPoliciesOfTheFileAreDoubtful(t *testing.T) {
	c, err := config.Load(strings.NewReader(`
outbound: [{listen: '127.0.0.1:1', routes: [{upstream: 'http://a', policy: ai, tokens: tokens},
  {prefix: /b, upstream: 'http://b', policy: api, tokens: token}]}]
drain: {policies: [api, apii]}
policies: [{name: api, algorithm: leaking_bucket, outflow: 1/s, capacity: 1, callbacks: hook,
  limits: [{name: a, algorithm: sliding_log, limit: 1, window: 1m, cost: tokens}]},
  {name: hooks, algorithm: leaking_bucket, outflow: 1/s, capacity: 1}]`), nil)
	want := []string{
		`outbound[0].routes[0].policy: requests get 502 until there is a policy "ai"; did you mean ` +
			`api?`,
		`outbound[0].routes[1].tokens: no limit of policy api has the cost "token", so it limits ` +
			`nothing; did you mean tokens?`,
		`policies[0].callbacks: jobs with a callback are refused until there is a policy "hook"; ` +
			`did you mean hooks?`,
		`drain.policies[1]: this file has no policy "apii"; did you mean api?`}
	if err != nil || !slices.Equal(c.Doubts, want) || len(c.Warnings) > 0 {
		t.Errorf("%v, doubts %q, want %q", err, c.Doubts, want)
	}
}
