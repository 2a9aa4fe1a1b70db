package penstock_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/admission/permits"
	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/kit/penstocktest"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/embedded"
	"github.com/penstock-mq/penstock/workers"
)

var (
	paced, door    = penstocktest.Paced, penstocktest.Door
	open, run, ask = penstocktest.Open, penstocktest.Run, penstocktest.Ask
	eventually     = waittest.Until
)

func depth(t *testing.T, p *penstock.Penstock, policy string) uint64 {
	t.Helper()
	depths, err := p.Depths(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return depths[policy]
}

func TestAllMistakesInOptionsAreReportedTogether(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	_, err = penstock.Open(t.Context(), penstock.Options{
		Policies: []policy.Policy{{Name: "A"}, door("signup"), door("signup"),
			paced("mail", 1, -1)},
		Set: "Sets", Prefix: "no.prefix", Replicas: 3, Lease: time.Millisecond,
		HTTP: penstock.HTTP{Listen: busy.Addr().String(), LameDuck: -1},
	})
	if err == nil {
		t.Fatal("taken")
	}
	for _, want := range []string{"Policies[0].name", "Policies[0].algorithm",
		"Policies[2].name: is already used by Policies[1]",
		"Policies[3].capacity", "Set:", "Prefix:", "Replicas:", "Lease:", "HTTP.LameDuck:",
		"address already in use"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("nothing of %s in:\n%v", want, err)
		}
	}
}

func TestMistakesInOptions(t *testing.T) {
	for want, o := range map[string]penstock.Options{
		"options: Policies[0].limit: must be 1 to 1000000000, not -1": {
			Policies: []policy.Policy{{Name: "signup", Rule: policy.Rule{
				Algorithm: policy.FixedWindow, Limit: -1, Window: policy.Duration(time.Hour)}}}},
		"options: Policies[1].name: is already used by Policies[0]": {
			Policies: []policy.Policy{door("signup"), door("signup")}},
		"options: Replicas: must be 1, not 3, with the embedded server": {
			Replicas: 3},
		"options: Replicas: must be 1, 3 or 5, not 2":  {URL: "nats://127.0.0.1:1", Replicas: 2},
		"options: Lease: must be at least 1s, not 1ms": {Lease: time.Millisecond},
		"options: HTTP.LameDuck: must not be negative": {
			HTTP: penstock.HTTP{LameDuck: -time.Second}},
		`options: Set: "My Set": want 1 to 32 characters of a-z, 0-9 and -`: {Set: "My Set"},
		`options: Prefix: prefix "a.b": want 1 to 32 of a-z, 0-9, - and _, ` +
			`beginning with a letter or digit`: {Prefix: "a.b"},
	} {
		if _, err := penstock.Open(t.Context(), o); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

func TestOpenLeavesNothingBehindWhenItFails(t *testing.T) {
	dir, address := t.TempDir(), proctest.FreeAddress(t)
	o := penstock.Options{Server: embedded.Options{Dir: dir}, HTTP: penstock.HTTP{Listen: address}}
	other := open(t, penstock.Options{Server: embedded.Options{Dir: dir}})
	if _, err := penstock.Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), dir) {
		t.Fatalf("two servers in one directory: %v", err)
	}
	other.Close()
	open(t, o)
}

func TestNoNATSAtTheURLIsAnErrorAtOnce(t *testing.T) {
	_, err := penstock.Open(t.Context(),
		penstock.Options{URL: "nats://me:secret@" + proctest.FreeAddress(t)})
	if err == nil || !strings.Contains(err.Error(), "connect to NATS at nats://127.0.0.1:") ||
		strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

func TestStartWithoutNATSAnswersChecksUntilItIsThere(t *testing.T) {
	address := proctest.FreeAddress(t)
	p := open(t, penstock.Options{URL: "nats://" + address, StartWithoutNATS: true,
		Policies: []policy.Policy{door("signup"), paced("mail", 100, 10)}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	eventually(t, "checks are not answered", func() bool {
		checked, err := p.Check(t.Context(), penstock.Request{Policy: "signup"})
		return err == nil && checked.Limit == 2
	})
	if _, err := p.Submit(t.Context(), penstock.Job{Policy: "mail"}); !errors.Is(err,
		admission.ErrUnavailable) {
		t.Errorf("a job without NATS: %v", err)
	}
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: address})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	waittest.Receive(t, p.Ready())
	if _, err := p.Submit(t.Context(), penstock.Job{Policy: "mail"}); err != nil {
		t.Error(err)
	}
	cancel()
	if err := waittest.Receive(t, ended); err != nil {
		t.Error(err)
	}
	p.Close()
}

func TestOpenEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := penstock.Open(ctx, penstock.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("before: %v", err)
	}

	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := penstock.Open(ctx,
		penstock.Options{URL: "nats://" + silent.Addr().String()}); err == nil {
		t.Error("opened")
	}
}

func TestPoliciesAreKeptForAStartWithoutNATS(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "policies.json")
	p := open(t, penstock.Options{Policies: []policy.Policy{door("signup")}, Cache: cache})
	stop := run(t, p)
	eventually(t, "nothing is kept", func() bool {
		_, err := os.Stat(cache)
		return err == nil
	})
	if err := stop(); err != nil {
		t.Error(err)
	}
	without := open(t, penstock.Options{URL: "nats://" + proctest.FreeAddress(t),
		StartWithoutNATS: true,
		Cache:            cache})
	run := make(chan error, 1)
	go func() { run <- without.Run(t.Context()) }()
	eventually(t, "checks are not answered", func() bool {
		checked, err := without.Check(t.Context(), penstock.Request{Policy: "signup"})
		return err == nil && checked.Limit == 2
	})
	without.Close()
	if err := waittest.Receive(t, run); err != nil {
		t.Error(err)
	}
}

func TestOpenWarnsOfATemporaryDirectory(t *testing.T) {
	var log strings.Builder
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	for dir, warns := range map[string]bool{"": true, t.TempDir(): false} {
		log.Reset()
		p, err := penstock.Open(t.Context(),
			penstock.Options{Server: embedded.Options{Dir: dir}})
		if err != nil {
			t.Fatal(err)
		}
		p.Close()
		told := strings.Contains(log.String(), "level=WARN msg=\"jobs are kept in a temporary")
		if told != warns {
			t.Errorf("with directory %q the log is\n%s", dir, &log)
		}
	}
}

type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestALostAnswerIsNotAwaitedForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		c, err := penstock.NewHTTPClient("http://penstock:8080", "",
			&http.Client{Transport: silent{}})
		if err != nil {
			t.Fatal(err)
		}
		for name, call := range map[string]func() error{
			"Submit": func() error {
				_, err := c.Submit(ctx, penstock.Job{Policy: "mail", Wait: time.Minute})
				return err
			},
			"Acquire": func() error {
				_, err := c.Acquire(ctx, penstock.Call{Policy: "mail", Wait: time.Minute})
				return err
			},
			"Cancel": func() error { return c.Cancel(ctx, "mail:1") },
		} {
			began := time.Now()
			err := call()
			if took := time.Since(began); !errors.Is(err, penstock.ErrUnavailable) ||
				took > 2*time.Minute || name != "Cancel" && took <= time.Minute {
				t.Errorf("%s: %v after %v", name, err, took)
			}
		}
	})
}

// asked returns once questions of each kind have been heard, which nobody answers.
func asked(t *testing.T, heard *nats.Subscription, kinds ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience())
	defer cancel()
	for len(kinds) > 0 {
		m, err := heard.NextMsgWithContext(ctx)
		if err != nil {
			t.Fatal(kinds, err)
		}
		kinds = slices.DeleteFunc(kinds, func(kind string) bool {
			return strings.HasPrefix(m.Subject, "penstock."+kind+".")
		})
	}
}

func hear(t *testing.T, nc *nats.Conn) *nats.Subscription {
	t.Helper()
	heard, err := nc.SubscribeSync("penstock.>")
	if err != nil || nc.Flush() != nil {
		t.Fatal(err, nc.LastError())
	}
	return heard
}

func TestWaitsEndWithTheirConnection(t *testing.T) {
	server := natstest.Start(t, embedded.Options{Dir: t.TempDir()})
	nc, ctx := natstest.Connect(t, server), context.Background()
	heard := hear(t, natstest.Connect(t, server))
	c, err := penstock.NewNATSClient(nc, "")
	if err != nil {
		t.Fatal(err)
	}
	names, err := jet.NewNames("")
	if err != nil {
		t.Fatal(err)
	}
	closed, err := permits.New(natstest.Connect(t, server), names)
	if err != nil {
		t.Fatal(err)
	}
	call := penstock.Call{Policy: "mail", Wait: permits.MaxWait}
	ended := make(chan error, 3)
	go func() { _, err := c.Wait(ctx, "mail:1"); ended <- err }()
	go func() { _, err := c.Acquire(ctx, call); ended <- err }()
	asked(t, heard, "job", "claim")
	nc.Close()
	for range 2 {
		if err := waittest.Receive(t, ended); !errors.Is(err, nats.ErrConnectionClosed) ||
			!errors.Is(err, penstock.ErrUnavailable) {
			t.Error(err)
		}
	}
	go func() { _, err := closed.Acquire(ctx, call); ended <- err }()
	asked(t, heard, "claim")
	closed.Close()
	closed.Close()
	if err := waittest.Receive(t, ended); !errors.Is(err, penstock.ErrUnavailable) {
		t.Error(err)
	}
}

func TestCloseBeforeRunEndsWaits(t *testing.T) {
	p, ctx := open(t, penstock.Options{Policies: []policy.Policy{paced("mail", 1, 2)}}),
		context.Background()
	heard := hear(t, connected(t, p))
	ended := make(chan error, 2)
	go func() {
		ticket, err := p.Submit(ctx, penstock.Job{Policy: "mail", Wait: admission.MaxWait})
		if ticket.NoResult != admission.NoResultStopping {
			t.Errorf("%+v", ticket)
		}
		ended <- err
	}()
	eventually(t, "a job waits", func() bool { return depth(t, p, "mail") == 1 })
	go func() {
		_, err := p.Acquire(ctx, penstock.Call{Policy: "mail", Wait: permits.MaxWait})
		if !errors.Is(err, penstock.ErrClosed) {
			t.Error(err)
		}
		ended <- nil
	}()
	asked(t, heard, "claim")
	p.Close()
	for range 2 {
		if err := waittest.Receive(t, ended); err != nil {
			t.Error(err)
		}
	}
}

func TestCloseEndsAReloadThatWaitsForNATS(t *testing.T) {
	p := open(t, penstock.Options{URL: "nats://127.0.0.1:1", StartWithoutNATS: true})
	ended := make(chan error, 1)
	go func() { ended <- p.Reload(context.Background(), penstock.Options{}) }()
	stacks := make([]byte, 1<<20)
	eventually(t, "the reload waits", func() bool {
		all := string(stacks[:runtime.Stack(stacks, true)])
		return strings.Contains(all, "(*Penstock).Reload(")
	})
	p.Close()
	if err := waittest.Receive(t, ended); !errors.Is(err, penstock.ErrClosed) {
		t.Error(err)
	}
}

func TestPoliciesOfAFile(t *testing.T) {
	policies, err := penstock.LoadPolicies("deploy/quickstart.yaml")
	if err != nil || len(policies) != 6 || policies[0].Name != "demo" {
		t.Fatalf("%v, %v", policies, err)
	}
	p := open(t, penstock.Options{Policies: policies})
	if checked, err := p.Check(t.Context(), penstock.Request{Policy: "signup",
		Key: "203.0.113.7"}); err != nil || !checked.Allowed {
		t.Errorf("%+v, %v", checked, err)
	}
}

func TestAllMistakesOfAPoliciesFileAreReportedWithTheirLines(t *testing.T) {
	name := filepath.Join(t.TempDir(), "penstock.yaml")
	for text, want := range map[string]string{
		"http: {listen: anything}\npolicies:\n  - {name: A, algorithm: abacus}\n" +
			"  - {name: b, algorithm: leaking_bucket, outflow: 10/x, capacity: 1}\n": "" +
			name + ":3: policies[0].name: \"A\": want 1 to 32 characters of a-z, 0-9 and -\n" +
			name + ":3: policies[0].algorithm: \"abacus\": want token_bucket, leaking_bucket, " +
			"fixed_window, sliding_log or sliding_counter\n" +
			name + ":4: policies[1].outflow: \"10/x\": want a rate per s, m, h, d, w or " +
			"a duration such as 10s",
		"polices: []\n":   name + ":1: polices: unknown field; did you mean policies?",
		"policies: [\n":   name + ":1: is not YAML: did not find expected node content",
		"nats: {}\n":      name + ": policies: is missing",
		"policies: all\n": name + ":1: policies: \"all\": want a list",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := penstock.LoadPolicies(name); err == nil || err.Error() != want {
			t.Errorf("got\n%v\nwant\n%s", err, want)
		}
	}
	if _, err := penstock.LoadPolicies(name + ".json"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// A process at a leaf node, which has a JetStream of its own, works in the domain of the hub.
func TestAProcessAtALeafNodeUsesTheDomainOfTheHub(t *testing.T) {
	hub, leaf := natstest.HubAndLeaf(t)
	streams := func(url string) (names []string) {
		js, err := jetstream.New(natstest.Reconnecting(t, url))
		if err != nil {
			t.Fatal(err)
		}
		for name := range js.StreamNames(t.Context()).Name() {
			names = append(names, name)
		}
		return names
	}
	ran := make(chan string, 10)
	handle := func(_ context.Context, j workers.Job) error {
		if ran <- string(j.Body); string(j.Body) == "bad" {
			return workers.Permanent(context.Canceled)
		}
		return nil
	}
	at := func(url, domain string) *penstock.Penstock {
		return open(t, penstock.Options{URL: url, Domain: domain,
			Policies: []policy.Policy{paced("mail", 1000, 100)}})
	}
	p := at(leaf.ClientURL(), "hub")
	p.Handle("mail", handle)
	run(t, p)
	for _, from := range []*penstock.Penstock{p, at(hub.ClientURL(), "")} {
		for _, body := range []string{"good", "bad"} {
			if _, err := from.Submit(t.Context(), penstock.Job{Policy: "mail", Key: "a",
				Body: []byte(body)}); err != nil {
				t.Fatal(err)
			}
			if got := waittest.Receive(t, ran); got != body {
				t.Errorf("ran %q, want %q", got, body)
			}
		}
		waittest.Until(t, "its jobs have ended", func() bool { return depth(t, p, "mail") == 0 })
	}
	if here, there := streams(leaf.ClientURL()), streams(hub.ClientURL()); len(here) > 0 ||
		len(there) < 8 {
		t.Errorf("the leaf node has %v, the hub %v", here, there)
	}
}
