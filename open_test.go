package penstock_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/proctest"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/embedded"
)

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
	receive(t, p.Ready())
	if _, err := p.Submit(t.Context(), penstock.Job{Policy: "mail"}); err != nil {
		t.Error(err)
	}
	cancel()
	if err := receive(t, ended); err != nil {
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
	if err := receive(t, run); err != nil {
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
