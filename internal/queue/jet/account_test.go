package jet

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
)

func at(t *testing.T, url string, o Options) *Broker {
	t.Helper()
	b, err := NewBroker(natstest.Reconnecting(t, url), o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// restricted is a server whose account has limits of JetStream.
func restricted(t *testing.T, limits string) *Broker {
	s := natstest.Serve(t, fmt.Sprintf(`jetstream {store_dir: %q, max_file: 4GB, max_mem: 1GB}
accounts {A {users: [{user: a, password: a}], jetstream: {%s}}}
no_auth_user: a
`, t.TempDir(), limits))
	return at(t, s.ClientURL(), Options{})
}

func TestAnAccountMayRequireBoundsOfStreams(t *testing.T) {
	const day = policy.Duration(24 * time.Hour)
	for name, limits := range map[string]string{
		"of known size": "max_file: 1GB, max_mem: 64MB, max_bytes_required: true",
		"of large streams": "max_file: 1GB, max_mem: 64MB, max_bytes_required: true, " +
			"disk_max_stream_bytes: 10MB",
		"of unknown size":        "max_bytes_required: true",
		"of large streams alone": "max_file: 1GB, max_mem: 64MB, disk_max_stream_bytes: 10MB",
		"without memory":         "max_file: 1GB, max_mem: 0, max_bytes_required: true",
	} {
		t.Run(name, func(t *testing.T) {
			b, ctx := restricted(t, limits), natstest.Context(t)
			for range 2 { // a restart keeps them
				if err := b.Setup(ctx); err != nil {
					t.Fatal(err)
				}
			}
			var all []policy.Policy
			for i := range 5 {
				p := policy.Policy{Name: fmt.Sprint("mail-", i), ResultRetention: day}
				p.Algorithm, p.Capacity = policy.LeakingBucket, 10
				all = append(all, p)
			}
			if _, err := b.Ration(ctx, all...); err != nil {
				t.Fatal(err)
			}
			for _, p := range all {
				if err := b.Apply(ctx, p); err != nil {
					t.Fatal(err)
				}
				if err := b.events.histories.open(ctx, p.Name); err != nil {
					t.Fatal(err)
				}
				if err := b.bounds.ensure(ctx, p.Name, b.Letters(p.Name).config()); err != nil {
					t.Fatal(err)
				}
			}
			if err := b.Audit(ctx, api.AuditEntry{What: "nothing", Policy: "mail-0"}); err != nil {
				t.Error(err)
			}
			if err := b.tally.keep(ctx, "mail-0", minute{V: job.FormatVersion, At: 1}); err != nil {
				t.Error(err)
			}
			if err := b.Schedules().SetUp(ctx); err != nil {
				t.Error(err)
			}
			if storage, err := b.Ration(ctx); err != nil || storage.Lacks != "" {
				t.Errorf("rationed again: %v; %s", err, storage.Lacks)
			}
			if _, err := b.Tables().Policies.Put(ctx, "mail-0", []byte("x"), 0); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestASecondInstallationInReachIsRefused(t *testing.T) {
	hub, leaf := natstest.HubAndLeaf(t)
	ctx := natstest.Context(t)
	first := at(t, hub.ClientURL(), Options{})
	if err := first.Setup(ctx); err != nil {
		t.Fatal(err)
	}
	if err := at(t, hub.ClientURL(), Options{}).Setup(ctx); err != nil {
		t.Errorf("another process of the installation: %v", err)
	}
	second := at(t, leaf.ClientURL(), Options{})
	for range 2 {
		if err := second.Setup(ctx); !errors.Is(err, ErrApart) {
			t.Errorf("a second installation: %v", err)
		}
	}
	if all, err := second.js.Names(ctx, "$JS.API.STREAM.NAMES"); err != nil || len(all) > 0 {
		t.Errorf("it has made %v; %v", all, err)
	}
	if err := at(t, leaf.ClientURL(), Options{Domain: "hub"}).Setup(ctx); err != nil {
		t.Errorf("a process at the leaf node with the domain of the hub: %v", err)
	}
	if err := at(t, leaf.ClientURL(), Options{Prefix: "other"}).Setup(ctx); err != nil {
		t.Errorf("an installation with another prefix: %v", err)
	}
}
