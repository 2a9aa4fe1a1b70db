package penstock_test

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/admission/permits"
	"github.com/penstock-mq/penstock/internal/natstest"
	"github.com/penstock-mq/penstock/internal/waittest"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
)

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
	names, err := queue.NewNames("")
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
		if err := receive(t, ended); !errors.Is(err, nats.ErrConnectionClosed) ||
			!errors.Is(err, penstock.ErrUnavailable) {
			t.Error(err)
		}
	}
	go func() { _, err := closed.Acquire(ctx, call); ended <- err }()
	asked(t, heard, "claim")
	closed.Close()
	closed.Close()
	if err := receive(t, ended); !errors.Is(err, penstock.ErrUnavailable) {
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
		if err := receive(t, ended); err != nil {
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
	if err := receive(t, ended); !errors.Is(err, penstock.ErrClosed) {
		t.Error(err)
	}
}
