package node_test

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/internal/admission/schedules"
	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
	"github.com/penstock-mq/penstock/workers"
)

// lossy is an admitter whose NATS server, seemingly in another process, loses data.
type lossy struct {
	*penstock.Penstock
	t      *testing.T
	server *embedded.Server
	dir    string
	listen string
	log    *waittest.Log
	jobs   chan workers.Job
	stop   func() error
}

func newLossy(t *testing.T) *lossy {
	t.Helper()
	l := &lossy{t: t, dir: t.TempDir(), listen: proctest.FreeAddress(t), log: &waittest.Log{},
		jobs: make(chan workers.Job, 100)}
	l.start()
	surveyed := make(chan struct{}, 1)
	l.Penstock = open(t, penstock.Options{URL: l.server.URL(),
		Logger: slog.New(slog.NewTextHandler(l.log, nil)),
		Sink: queue.SinkFunc(func(e queue.Event) {
			found, _ := e.Data.(jet.Storage)
			if found.Made["PENSTOCK_SCHEDULES"].IsZero() || found.Made["PENSTOCK_mail"].IsZero() {
				return
			}
			select {
			case surveyed <- struct{}{}:
			default:
			}
		}),
		Policies: []policy.Policy{paced("mail", 1000, 10)},
		Schedules: []schedules.Entry{{Policy: "mail", Key: "tick", Name: "yearly",
			When: "@yearly"}}})
	l.Handle("mail", func(_ context.Context, job workers.Job) error {
		l.jobs <- job
		return nil
	})
	l.stop = run(t, l.Penstock)
	t.Cleanup(l.Close)
	l.works()
	waittest.Receive(t, surveyed)
	return l
}

func (l *lossy) start() {
	l.t.Helper()
	l.server = natstest.Start(l.t, embedded.Options{Dir: l.dir, Listen: l.listen})
}

func (l *lossy) wipe() {
	l.t.Helper()
	l.server.Shutdown()
	if err := os.RemoveAll(l.dir); err != nil {
		l.t.Fatal(err)
	}
	l.start()
}

func (l *lossy) remove(stream string) {
	l.t.Helper()
	js, err := jetstream.New(natstest.Connect(l.t, l.server))
	if err != nil {
		l.t.Fatal(err)
	}
	if err := js.DeleteStream(natstest.Context(l.t), stream); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lossy) works() {
	l.t.Helper()
	var id string
	eventually(l.t, "a job is accepted", func() bool {
		ticket, err := l.Submit(l.t.Context(), penstock.Job{Policy: "mail"})
		id = ticket.Job
		return err == nil
	})
	for waittest.Receive(l.t, l.jobs).ID != id {
	}
	eventually(l.t, "it is healthy", func() bool { return l.Health() == nil })
}

func (l *lossy) hasSchedule() {
	l.t.Helper()
	eventually(l.t, "the schedule is there", func() bool {
		status, _ := ask(l.t, l.Penstock, http.MethodGet, "/v1/schedules/mail/tick?name=yearly", "")
		return status == http.StatusOK
	})
}

func (l *lossy) streams() (names []string) {
	l.t.Helper()
	js, err := jetstream.New(natstest.Connect(l.t, l.server))
	if err != nil {
		l.t.Fatal(err)
	}
	list := js.StreamNames(natstest.Context(l.t))
	for name := range list.Name() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

const lost = "NATS has lost data: recreating what is missing, without the data"

func TestAnAdmitterHealsAnEmptyStore(t *testing.T) {
	l := newLossy(t)
	before := l.streams()
	l.wipe()
	l.works()
	eventually(t, "all is there again", func() bool { // and streams that are made when first used
		there := l.streams()
		missing := func(stream string) bool { return !slices.Contains(there, stream) }
		return !slices.ContainsFunc(before, missing)
	})
	eventually(t, "the log says so", func() bool { return l.log.Count(lost) == 1 })
	l.hasSchedule()
	if err := l.stop(); err != nil {
		t.Error(err)
	}
}

func TestAnAdmitterHealsDeletedStreams(t *testing.T) {
	for _, stream := range []string{"KV_PENSTOCK_POLICIES", "KV_PENSTOCK_DRAINERS",
		"KV_PENSTOCK_PARTITIONS", "KV_PENSTOCK_LOCKS", "PENSTOCK_SCHEDULES", "PENSTOCK_mail"} {
		t.Run(stream, func(t *testing.T) {
			t.Parallel()
			l := newLossy(t)
			l.remove(stream)
			eventually(t, "it is there again, and the log says so", func() bool {
				return l.log.Count(lost) == 1 && slices.Contains(l.streams(), stream)
			})
			l.works()
			l.hasSchedule()
		})
	}
}

func TestAnAdmitterEndsWhileNATSHasNothing(t *testing.T) {
	l := newLossy(t)
	l.wipe()
	if err := l.stop(); err != nil { // a handover may have been incomplete
		t.Error(err)
	}
}
