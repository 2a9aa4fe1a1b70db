package clients

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/roles"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/embedded"
	"github.com/penstock-mq/penstock/workers"
)

type installation struct {
	t  *testing.T
	p  *penstock.Penstock
	nc *nats.Conn
}

func start(t *testing.T, p policy.Policy, users ...embedded.User) *installation {
	t.Helper()
	i := &installation{t: t}
	i.p, _ = openWith(t, func(*penstock.Penstock) {},
		penstock.Options{Server: embedded.Options{Users: users}}, p)
	var err error
	if i.nc, err = i.p.Connect("test"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.nc.Close)
	return i
}

func (i *installation) publish(key, payload string) {
	i.t.Helper()
	if _, err := i.nc.Request("penstock.jobs.jobs."+key, []byte(payload),
		waittest.Patience()); err != nil {
		i.t.Fatal(err)
	}
}

type worker struct {
	*proctest.Process
	i    *installation
	seen []string
}

func (i *installation) work(l *language, url, policy string, env ...string) *worker {
	i.t.Helper()
	c := l.program(i.t, "worker", url, policy)
	c.Env = append(c.Environ(), env...)
	return &worker{Process: proctest.Start(i.t, c), i: i}
}

func (w *worker) ran() []string {
	for {
		select {
		case line, more := <-w.Lines:
			if !more {
				return w.seen
			}
			w.seen = append(w.seen, strings.TrimPrefix(line, "ran "))
		default:
			return w.seen
		}
	}
}

func (w *worker) runs(n int) {
	w.i.t.Helper()
	waittest.Until(w.i.t, fmt.Sprint(n, " jobs have run"), func() bool { return len(w.ran()) >= n })
}

func (w *worker) says(text string) {
	w.i.t.Helper()
	waittest.Until(w.i.t, "the worker says "+text, func() bool {
		return strings.Contains(w.Log.String(), text)
	})
}

func (w *worker) stop() []string {
	w.i.t.Helper()
	if err := w.Stop(); err != nil {
		w.i.t.Errorf("worker: %v", err)
	}
	return w.ran()
}

func (i *installation) empty() {
	i.t.Helper()
	waittest.Until(i.t, "the queue is empty", func() bool {
		depths, err := i.p.Depths(i.t.Context())
		return err == nil && depths["jobs"] == 0
	})
}

func TestWorkersNeedNoMoreThanTheirRole(t *testing.T) {
	each(t, func(t *testing.T, l *language) {
		i := start(t, jobs(), embedded.User{Name: "crew", Role: roles.Worker,
			Policies: []string{"jobs"},
			Password: "$2a$04$SCMaQ9mZ2Yp9EgZFWwxhNeSUIrH.0ab3peKOekFcBCfxBd8xhoQqS"})
		_, at, _ := strings.Cut(i.p.NATSURL(), "//")
		w := i.work(l, "nats://crew:secret@"+at, "jobs")
		i.publish("a", "once")
		w.runs(1)
		i.empty()
		w.stop()
	})
}

func jobs() policy.Policy {
	p := bucket("jobs", 20)
	p.Partitions, p.Timeout = 2, policy.Duration(time.Second)
	p.Retry = policy.Retry{MaxAttempts: 2, Backoff: policy.Duration(10 * time.Millisecond)}
	return p
}

func TestWorkersReportProgressAndReplies(t *testing.T) {
	each(t, func(t *testing.T, l *language) {
		p := jobs()
		p.ResultRetention, p.Timeout = policy.Duration(time.Hour), policy.Duration(time.Minute)
		i := start(t, p)
		w := i.work(l, i.p.NATSURL(), "jobs")
		url := "http://" + i.p.HTTPAddr().String() + "/v1/jobs/"
		submit := func(payload string) chan string {
			ended := make(chan string, 1)
			go func() {
				ended <- string(send(t, url+"jobs/"+payload+"?wait=5m", payload,
					http.Header{"Authorization": {"Bearer " + token}}, http.StatusOK))
			}()
			return ended
		}
		waits := func(of, want string) {
			t.Helper()
			var got string
			waittest.Until(t, of+" has "+want, func() bool {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+of, nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Authorization", "Bearer "+token)
				answer, err := http.DefaultClient.Do(r)
				if err != nil {
					return false
				}
				defer answer.Body.Close()
				text, _ := io.ReadAll(answer.Body)
				got = string(text)
				return strings.Contains(got, want)
			})
		}
		far := submit("far")
		waits("jobs:1", `"progress":"40 %"`)
		for _, one := range []struct {
			got  string
			want []string
		}{
			{<-submit("near"), []string{`"end":"dead"`, `"body":"near"`, `["text/plain`}},
			{<-far, []string{`"end":"done"`, `far`, `["application/json"]`}},
			{<-submit("large"), []string{`"end":"done"`, `"body_too_large":true`}},
		} {
			for _, want := range one.want {
				if !strings.Contains(one.got, want) {
					t.Errorf("the outcome is %.200s, want %s in it", one.got, want)
				}
			}
		}
		waits("jobs:1", `"answer":"{\"far\":`)
		w.stop()
	})
}

// A worker reports an answer at once if a limit asks for it.
func TestWorkersReportAnswers(t *testing.T) {
	each(t, func(t *testing.T, l *language) {
		p := jobs()
		p.WindowMargin = policy.Duration(time.Millisecond)
		p.Limits = policy.Limits{{Name: "arrivals", CountFrom: policy.CountFromAnswer,
			Rule: policy.Rule{Algorithm: policy.SlidingLog, Limit: 1000,
				Window: policy.Duration(time.Second)}}}
		i := start(t, p)
		heard, err := i.nc.SubscribeSync("penstock.claim.jobs.>")
		if err != nil {
			t.Fatal(err)
		}
		i.publish("a", "answered")
		i.work(l, i.p.NATSURL(), "jobs")
		for {
			m, err := heard.NextMsg(waittest.Patience())
			if err != nil {
				t.Fatal(err)
			}
			switch c, err := job.ReadClaim(m.Data); {
			case err != nil || c.Op == job.OpClaim || c.Op == job.OpProgress:
			case c.Op == job.OpAnswered:
				return
			default:
				t.Fatalf("report %+v before the answer", c)
			}
		}
	})
}

// A worker that has claimed a job when it is told to stop runs it, or gives it back: one on its way
// to a closed connection would be a failed attempt.
func TestAStoppedWorkerWaitsForWhatItClaimed(t *testing.T) {
	each(t, func(t *testing.T, l *language) {
		i := start(t, jobs())
		reports, err := i.nc.SubscribeSync(i.nc.NewInbox())
		if err != nil {
			t.Fatal(err)
		}
		offer, err := json.Marshal(job.Turn{V: job.FormatVersion, State: job.TurnOffer})
		if err != nil {
			t.Fatal(err)
		}
		for inTime := false; !inTime; { // on a machine that is not too busy
			w := i.work(l, i.p.NATSURL(), "jobs")
			var claim *nats.Msg
			waittest.Until(t, "the worker claims a job", func() bool {
				claim, err = i.nc.Request("penstock.work.jobs", offer, waittest.Patience())
				return err == nil
			})
			told := time.Now()
			w.Signal(syscall.SIGTERM)
			time.Sleep(job.ClaimWindow / 2)
			text, err := json.Marshal(job.Turn{V: job.FormatVersion, State: job.TurnGo,
				LeaseMS: 1000, Job: &job.Started{ID: "jobs:1", Policy: "jobs", Key: "a"}})
			if err != nil {
				t.Fatal(err)
			}
			if err := i.nc.PublishMsg(&nats.Msg{Subject: claim.Reply, Reply: reports.Subject,
				Header: nats.Header{job.HeaderTurn: {string(text)}}}); err != nil {
				t.Fatal(err)
			}
			inTime = time.Since(told) < job.ClaimWindow*4/5
			for inTime {
				m, err := reports.NextMsg(waittest.Patience())
				if err != nil {
					t.Fatalf("the job that the worker claimed: %v", err)
				}
				if c, err := job.ReadClaim(m.Data); err == nil && c.Op == job.OpSettle {
					if err := m.Respond(offer); err != nil {
						t.Error(err)
					}
					break
				}
			}
			if err := w.End(); err != nil { // a second signal would end it at once
				t.Error(err)
			}
		}
	})
}

// A worker and callers in 40 lines follow docs/workers-protocol.md, and nothing else.
func TestTheProtocolsPageIsEnough(t *testing.T) {
	t.Parallel()
	p := jobs()
	p.Partitions, p.Concurrency = 1, 1
	i := start(t, p)
	for n := range 20 {
		i.publish("acme", fmt.Sprint("job ", n))
	}
	w := &worker{i: i, Process: proctest.Start(t,
		languages[0].program(t, "page", i.p.NATSURL(), "jobs", "20"))}
	waittest.Until(t, "20 jobs have run and 20 calls", func() bool {
		calls := 0
		for _, line := range w.ran() {
			if line == "called" {
				calls++
			}
		}
		return calls == 20 && len(w.seen) >= 40
	})
	i.empty()
}

func TestCodecsInteroperate(t *testing.T) {
	each(t, func(t *testing.T, l *language) {
		of := jobs()
		of.Name, of.Timeout = "go", policy.Duration(time.Minute)
		codec := penstock.Codec{Encode: compress, Decode: decompress}
		p, url := openWith(t, func(p *penstock.Penstock) {
			p.Handle("go", func(_ context.Context, j workers.Job) error {
				if !job.IsEncoded(j.Header) {
					return workers.Permanent(fmt.Errorf("%s came as it is", j.Body))
				}
				j.Reply(0, nil, fmt.Appendf(nil, "%s, %s %s %s %s in Go", j.Body,
					j.Header.Get(job.HeaderMaxAttempts), j.Header.Get(job.HeaderTimeout),
					j.Header.Get(job.HeaderRetention), j.Header.Get(job.HeaderUnique)))
				return nil
			})
		}, penstock.Options{Codec: codec}, jobs(), of)
		c := proctest.Start(t, l.program(t, "codec", url, token, p.NATSURL()))
		got := strings.ReplaceAll(<-c.Lines, " ", "")
		if want := `{"from":"` + l.name + `"},130000ms1hone;replaceinGo`; got != want {
			t.Errorf("the reply of Go is %s, want %s", got, want)
		}
		ticket, err := p.Submit(t.Context(), penstock.Job{Policy: "jobs", Body: []byte("a text"),
			Wait: waittest.Patience()})
		if err != nil || ticket.Result == nil || ticket.Result.Reply == nil ||
			string(ticket.Result.Reply.Body) != "a text, in "+l.name {
			t.Errorf("Go gets %+v, %v", ticket.Result, err)
		}
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
		waittest.Until(t, "the batch has run", func() bool {
			depths, err := p.Depths(t.Context())
			return err == nil && depths["go"] == 0
		})
		letters, err := p.Connect("test")
		if err != nil {
			t.Fatal(err)
		}
		defer letters.Close()
		js, err := letters.JetStream(nats.MaxWait(waittest.Patience()))
		if err != nil {
			t.Fatal(err)
		}
		if m, err := js.GetLastMsg("PENSTOCK_DEAD_go", "penstock.dead.go.>"); err == nil {
			t.Errorf("a job of the batch is dead: %v", m.Header)
		}
	})
}

func compress(plain []byte) ([]byte, error) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(plain)
	err = errors.Join(err, w.Close())
	return b.Bytes(), err
}

func decompress(encoded []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(encoded))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

func TestWorkersEndJobsAsTheirHandlersSay(t *testing.T) {
	each(t, func(t *testing.T, l *language) {
		i := start(t, jobs())
		want := map[string]int{}
		for n := range 10 {
			i.publish("a.%.%C3%BC", fmt.Sprint("number ", n))
			want[fmt.Sprint("a..ü 1 number ", n)] = 1
		}
		for payload, attempts := range map[string][]int{
			"fail": {1, 2}, "exit": {1, 2}, "permanent": {1}, "throttled": {1, 1}, "again": {1, 1},
			"stuck":                          {1, 2},
			"slow, longer than the time-out": {1},
		} {
			key, _, _ := strings.Cut(payload, ",")
			i.publish(key, payload)
			for _, attempt := range attempts {
				want[fmt.Sprint(key, " ", attempt, " ", payload)]++
			}
		}
		w := i.work(l, i.p.NATSURL(), "jobs")
		i.empty()
		got := map[string]int{}
		for _, line := range w.stop() {
			words := strings.Fields(line)
			if len(words) < 5 || !strings.HasPrefix(words[2], "jobs:") ||
				!strings.HasPrefix(words[3], "jobs-") {
				t.Fatalf("fields of the job are missing: %q", line)
			}
			got[strings.Join(append(words[:2:2], words[4:]...), " ")]++
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("it ran %v, want %v", got, want)
		}
		js, err := i.nc.JetStream(nats.MaxWait(waittest.Patience()))
		if err != nil {
			t.Fatal(err)
		}
		for key, reason := range map[string]string{"fail": "attempts", "exit": "attempts",
			"permanent": "permanent", "stuck": "attempts"} {
			m, err := js.GetLastMsg("PENSTOCK_DEAD_jobs", "penstock.dead.jobs."+key)
			if err != nil {
				t.Fatal(err)
			}
			if got := m.Header.Get("Penstock-Dead-Reason"); got != reason {
				t.Errorf("%s: dead letter %q, want %q", key, got, reason)
			}
			text := m.Header.Get("Penstock-Dead-Error")
			if key == "fail" && text != "it will not do" || key == "exit" && text != "? left" {
				t.Errorf("the dead letter says %q", text)
			}
		}
	})
}

// Such reports open the drainer's breaker.
func TestWorkersReportThatTheirTargetIsDown(t *testing.T) {
	each(t, func(t *testing.T, l *language) {
		i := start(t, jobs())
		opened, err := i.nc.SubscribeSync("penstock.event.jobs.down")
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			i.publish("down", "down")
		}
		w := i.work(l, i.p.NATSURL(), "jobs")
		for {
			m, err := opened.NextMsg(waittest.Patience())
			if err != nil {
				t.Fatalf("no breaker opens: %v; it ran:\n%s", err, strings.Join(w.ran(), "\n"))
			}
			if strings.Contains(string(m.Data), `"type":"breaker_opened"`) {
				return
			}
		}
	})
}

// TestWorkersStop ends a worker while it runs a job: it finishes the job within its grace, and
// another worker runs the rest. A job that the worker returns runs elsewhere, at its first attempt.
func TestWorkersStop(t *testing.T) {
	each(t, func(t *testing.T, l *language) {
		patient := jobs()
		patient.Timeout = policy.Duration(time.Hour)
		i := start(t, patient)
		i.publish("a", "slow")
		w := i.work(l, i.p.NATSURL(), "jobs")
		w.runs(1)
		w.stop()
		i.empty()

		i.publish("a", "stuck")
		for range 2 {
			w = i.work(l, i.p.NATSURL(), "jobs", "GRACE=0.2")
			w.runs(1)
			if ran := w.stop(); !strings.HasPrefix(ran[0], "a 1 jobs:2 ") {
				t.Errorf("it ran %q", ran)
			}
		}
	})
}

func TestWorkersReconnect(t *testing.T) {
	each(t, func(t *testing.T, l *language) {
		patient := jobs()
		patient.Timeout = policy.Duration(time.Hour)
		i := start(t, patient)
		r := newRelay(t, i.p.NATSURL())
		w := i.work(l, "nats://"+r.Addr().String(), "jobs")
		i.publish("a", "slow")
		w.runs(1)
		r.cut()
		i.empty()
		i.publish("a", "second")
		i.empty()
		for n, line := range w.stop() {
			if !strings.HasPrefix(line, fmt.Sprintf("a 1 jobs:%d ", n+1)) {
				t.Errorf("it ran %q", line)
			}
		}
	})
}

// Workers report a policy without a drainer, and a policy whose target runs all of its jobs.
func TestWorkersReportThatNoOfferComes(t *testing.T) {
	p := jobs()
	p.Target = &policy.Target{HTTP: &policy.HTTPTarget{URL: "http://127.0.0.1:1"}}
	each(t, func(t *testing.T, l *language) {
		i := start(t, p)
		i.work(l, i.p.NATSURL(), "joobs").says("no drainer owns it")
		w := i.work(l, i.p.NATSURL(), "jobs")
		w.says("has a target")
		err := i.p.Reload(t.Context(), penstock.Options{Policies: []policy.Policy{jobs()}})
		if err != nil {
			t.Fatal(err)
		}
		w.says("jobs can come now")
	})
}

func TestWorkersEndWithoutNATS(t *testing.T) {
	each(t, func(t *testing.T, l *language) {
		w := (&installation{t: t}).work(l, "nats://127.0.0.1:1", "jobs")
		w.says("127.0.0.1")
		w.stop()
	})
}

// An outage is a line at its beginning and one at its end.
func TestWorkersReportAnOutageOnce(t *testing.T) {
	each(t, func(t *testing.T, l *language) {
		p := jobs()
		p.Timeout = policy.Duration(time.Minute) // an answer to a report may be lost in the outage
		i := start(t, p)
		r := newRelay(t, i.p.NATSURL())
		w := i.work(l, "nats://"+r.Addr().String(), "jobs")
		i.publish("a", "first")
		w.runs(1)
		i.empty()
		r.refuse(4)
		w.says("is connected")
		w.stop()
		if n := w.Log.Count("\n"); n != 2 {
			t.Errorf("it said %d lines:\n%s", n, w.Log)
		}
	})
}
