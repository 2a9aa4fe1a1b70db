package schedules_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
	"github.com/penstock-mq/penstock/workers"
)

// Variables that make a child process a server: its directory, and the policy whose ticks its
// admitter never acknowledges.
const (
	tickServer = "TICKS_TEST_DIRECTORY"
	tickHeld   = "TICKS_TEST_HELD"
)

// After a kill the server repeats the last tick of a daily schedule, without the ids of ended jobs
// and of jobs older than the window.
func TestATickBecomesOneJobThoughTheServerIsKilled(t *testing.T) {
	if dir := os.Getenv(tickServer); dir != "" {
		serveTicks(dir)
		return
	}
	t.Parallel()
	for _, test := range []struct{ name, policy string }{
		{"between the job's end and the tick's acknowledgement", "held"},
		{"while the job waits", "waits"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			first, js := startTicks(t, dir, "")
			schedule(t, js, test.policy, time.Now().UTC().Add(4*time.Second).
				Format("5 4 15 * * *"))
			if err := first.Stop(); err != nil {
				t.Fatal(err)
			}
			first, js = startTicks(t, dir, "held")
			jobs := func() *jetstream.StreamInfo {
				stream, err := js.Stream(t.Context(), "PENSTOCK_"+test.policy)
				if err != nil {
					return &jetstream.StreamInfo{}
				}
				return stream.CachedInfo()
			}
			ended := func() bool {
				state := jobs().State
				return state.LastSeq == 1 && (state.Msgs == 0) == (test.policy == "held")
			}
			eventually(t, "the tick's job is stored, and ends unless it waits", ended)
			if test.policy == "waits" {
				eventually(t, "the tick is acknowledged", func() bool { return ticks(t, js) == 0 })
				eventually(t, "its id is older than the window", func() bool {
					return time.Since(jobs().State.LastTime) > 2*time.Second
				})
			}
			first.Kill()

			_, js = startTicks(t, dir, "")
			schedule(t, js, "clock", "@every 1s")
			eventually(t, "other ticks come", func() bool {
				stream, err := js.Stream(t.Context(), "PENSTOCK_clock")
				return err == nil && stream.CachedInfo().State.LastSeq >= 2 ||
					jobs().State.LastSeq > 1
			})
			eventually(t, "no tick is left", func() bool {
				return ticks(t, js) == 0 || jobs().State.LastSeq > 1
			})
			if last := jobs().State.LastSeq; last != 1 {
				t.Errorf("the tick became %d jobs", last)
			}
		})
	}
}

func ticks(t *testing.T, js jetstream.JetStream) (n int) {
	stream, err := js.Stream(t.Context(), "PENSTOCK_SCHEDULES")
	if err != nil {
		return -1
	}
	info, err := stream.Info(t.Context(),
		jetstream.WithSubjectFilter("penstock.schedule.*.*.*.>"))
	if err != nil {
		return -1
	}
	for subject := range info.State.Subjects {
		if kind := strings.Split(subject, "."); kind[2] == "due" && kind[3] != "clock" {
			n++
		}
	}
	return n
}

func schedule(t *testing.T, js jetstream.JetStream, policy, when string) {
	t.Helper()
	for kind, header := range map[string]nats.Header{
		"on": {"Penstock-Schedule": {when}},
		"next": {"Penstock-Schedule-After": {time.Now().UTC().Format(time.RFC3339)},
			"Nats-Schedule":        {"@at " + time.Now().UTC().Format(time.RFC3339)},
			"Nats-Schedule-Target": {"penstock.schedule.due." + policy + ".default.acme"}},
	} {
		m := &nats.Msg{Subject: "penstock.schedule." + kind + "." + policy + ".default.acme",
			Header: header}
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
}

func startTicks(t *testing.T, dir, held string) (*proctest.Process, jetstream.JetStream) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run", "^TestATickBecomesOneJobThoughTheServerIsKilled$")
	cmd.Env = append(os.Environ(), tickServer+"="+dir, tickHeld+"="+held)
	p := proctest.Start(t, cmd)
	words, err := p.Ready(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(words["nats"])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return p, js
}

func serveTicks(dir string) {
	waits, held, clock := paced("waits", 1, 10), paced("held", 100, 10), paced("clock", 100, 1000)
	waits.DuplicateWindow = policy.Duration(time.Second)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	p, err := penstock.Open(ctx, penstock.Options{
		Server:   embedded.Options{Dir: dir, Listen: "127.0.0.1:0"},
		Policies: []policy.Policy{waits, held, clock},
		Sink: queue.SinkFunc(func(e queue.Event) {
			if e.Type == jet.EventAdmitted && e.Policy == os.Getenv(tickHeld) {
				select {}
			}
		}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Close()
	for _, name := range []string{"held", "clock"} {
		p.Handle(name, func(context.Context, workers.Job) error { return nil })
	}
	go func() {
		<-p.Ready()
		fmt.Printf("ready nats=%s\n", p.NATSURL())
	}()
	fmt.Println(p.Run(ctx))
}
