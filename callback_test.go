package penstock_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers"
	"github.com/penstock-mq/penstock/workers/httptarget"
)

type receiver struct {
	*httptest.Server
	called chan call
}

type call struct{ path, id, signature, body string }

func receiving(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{called: make(chan call, 100)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, got *http.Request) {
		body, err := io.ReadAll(got.Body)
		if err != nil {
			t.Error(err)
		}
		r.called <- call{got.URL.RequestURI(), got.Header.Get("Idempotency-Key"),
			got.Header.Get("Penstock-Signature"), string(body)}
	}))
	t.Cleanup(r.Close)
	return r
}

func calling(t *testing.T, capacity int64) []policy.Policy {
	t.Helper()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("a key of some length"), 0o600); err != nil {
		t.Fatal(err)
	}
	mail, calls := paced("mail", 1000, 100), paced("calls", 1000, capacity)
	mail.Callbacks, mail.Retry.MaxAttempts = "calls", 1
	calls.Target = &policy.Target{HTTP: &policy.HTTPTarget{URL: policy.CallbackURL,
		Sign: &policy.Signing{HMACFile: key}}}
	return []policy.Policy{mail, calls}
}

func beside(t *testing.T, p *penstock.Penstock) *jet.Broker {
	t.Helper()
	nc, err := p.Connect("beside")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	broker, err := jet.NewBroker(nc, jet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return broker
}

var here = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// waitUntilPaused waits until the drainer reports a bucket as paused. The override in the same
// answer may not have reached it yet.
func waitUntilPaused(t *testing.T, p *penstock.Penstock, bucket string) {
	t.Helper()
	waittest.Until(t, "the drainer knows of the pause", func() bool {
		var state struct{ Paused bool }
		askAPI(t, p, "GET", bucket, &state)
		return state.Paused
	})
}

// Done, dead and cancelled jobs are posted, with their reply, signed, and with an id that
// identifies repeats.
func TestTheOutcomeOfAJobIsPosted(t *testing.T) {
	r := receiving(t)
	p := open(t, penstock.Options{Policies: calling(t, 100), AllowTargets: here})
	p.Handle("mail", func(_ context.Context, j workers.Job) error {
		reply := j.Body
		if string(reply) == "large" {
			reply = bytes.Repeat([]byte("é"), queue.MaxReply)
		}
		j.Reply(201, http.Header{"X-Id": {"7"}}, reply)
		switch string(j.Body) {
		case "bad":
			return workers.Permanent(errors.New("no such address"))
		case "fails":
			return errors.New("try again")
		}
		return nil
	})
	run(t, p)
	for body, want := range map[string]string{
		"good": `,"end":"done","attempts":0,"reply":{"status":201,"header":{"X-Id":["7"]},` +
			`"body":"good"}}`,
		"\x80":  `"body_base64":"gA=="}}`,
		"large": `"reply":{"status":201,"header":{"X-Id":["7"]},"body_too_large":true}}`,
		"bad": `"end":"dead","reason":"permanent","error":"no such address","attempts":1,` +
			`"reply":{"status":201,`,
		"fails": `"end":"dead","reason":"attempts","error":"try again","attempts":1}`,
		"late":  `"end":"dead","reason":"deadline",`,
	} {
		header := http.Header{job.HeaderCallback: {r.URL + "/hook?of=1"}}
		if body == "late" {
			header[job.HeaderDeadline] = []string{"30ms"}
			ask(t, p, "POST", "/v1/pause/mail/late", "")
			waitUntilPaused(t, p, "/v1/buckets/mail/late")
		}
		ticket, err := p.Submit(t.Context(), penstock.Job{Policy: "mail",
			Key: strings.ToValidUTF8(body, "x"), Body: []byte(body), Header: header})
		if err != nil || ticket.Job == "" {
			t.Fatalf("%+v, %v", ticket, err)
		}
		got := waittest.Receive(t, r.called)
		_, seq, _ := strings.Cut(ticket.Job, ":")
		if !strings.HasPrefix(got.body, `{"job":"`+ticket.Job+`"`) ||
			!strings.Contains(got.body, want) || got.path != "/hook?of=1" ||
			!strings.HasPrefix(got.id, "mail-") || !strings.HasSuffix(got.id, "-"+seq) ||
			!strings.HasPrefix(got.signature, "t=") {
			t.Errorf("%q: posted %+v", body, got)
		}
	}
}

func TestAMalformedJobIsReported(t *testing.T) {
	r := receiving(t)
	p := open(t, penstock.Options{Policies: calling(t, 100), AllowTargets: here})
	p.Handle("mail", func(context.Context, workers.Job) error { return nil })
	run(t, p)
	nc, err := p.Connect("plain")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	m := nats.NewMsg("penstock.jobs.mail.a")
	m.Header = nats.Header{job.HeaderCallback: {r.URL}, job.HeaderTag: {"good, b d"}}
	if _, err := nc.RequestMsgWithContext(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if got := waittest.Receive(t, r.called); !strings.Contains(got.body, `"reason":"malformed"`) {
		t.Errorf("posted %+v", got)
	}
}

func TestForbiddenCallbackURLs(t *testing.T) {
	r := receiving(t)
	policies := append(calling(t, 100), paced("mute", 1000, 10))
	elsewhere := paced("elsewhere", 1000, 10)
	elsewhere.Callbacks = "mute"
	p := open(t, penstock.Options{Policies: append(policies, elsewhere)})
	p.Handle("mail", func(context.Context, workers.Job) error { return nil })
	run(t, p)
	for _, c := range []struct {
		policy, url string
		status      int
		want        string
	}{
		{"mail", r.URL, 400, "targets.allow"},
		{"mail", "http://localhost/", 400, "targets.allow"},
		{"mail", "http://[::ffff:169.254.169.254]/", 400, "link-local"},
		{"mail", "http://user:pw@example.test/", 400, "password"},
		{"mail", "gopher://example.test/", 400, "want http://"},
		{"mail", "/hook", 400, "want http://"},
		{"mail", "http://example.test:65536/", 400, "port"},
		{"mail", "http://example.test:0/", 400, "port"},
		{"mail", "http://" + strings.Repeat("x", 2100), 400, "2048"},
		{"mute", "http://example.test/", 400, "no callbacks"},
		{"elsewhere", "http://example.test/", 409, "cannot post callbacks"},
		{"calls", "", 409, "callbacks of other jobs"},
	} {
		var header []string
		if c.url != "" {
			header = []string{job.HeaderCallback, c.url}
		}
		status, answer := ask(t, p, "POST", "/v1/jobs/"+c.policy+"/a", "x", header...)
		if status != c.status || !strings.Contains(answer, c.want) {
			t.Errorf("%s to %.80s: %d %s", c.policy, c.url, status, answer)
		}
	}
	// A plain publish bypasses the admitter.
	broker := beside(t, p)
	if _, err := broker.NewProducer(jet.ProducerOptions{}).Publish(t.Context(),
		jet.Submission{Policy: "mail", Key: "a",
			Header: map[string][]string{job.HeaderCallback: {r.URL}}}); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the callback is a dead letter", func() bool {
		_, answer := ask(t, p, "GET", "/v1/dead/calls", "")
		return strings.Contains(answer, `"reason":"permanent"`) &&
			strings.Contains(answer, "the target's address is not allowed")
	})
	if len(r.called) > 0 {
		t.Errorf("posted %+v", <-r.called)
	}
}

// The drainer that ran the job queues its outcome, and crashes before it can acknowledge the job.
// The next drainer runs it again, and its outcome is a repeat.
func TestACrashAfterACallbackDoesNotRepeatIt(t *testing.T) {
	r := receiving(t)
	p := open(t, penstock.Options{Policies: calling(t, 100), AdmitOnly: true,
		AllowTargets: here})
	run(t, p)
	drain := func(o workers.Options) *nats.Conn {
		t.Helper()
		nc, err := p.Connect("drainer")
		if err != nil {
			t.Fatal(err)
		}
		o.Lease, o.Target = time.Second, httptarget.New(httptarget.Options{Allow: here})
		d, err := workers.New(nc, o)
		if err != nil {
			t.Fatal(err)
		}
		d.Handle("mail", func(context.Context, workers.Job) error { return nil })
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = d.Run(ctx)
		}()
		t.Cleanup(func() {
			cancel()
			waittest.Receive(t, ended)
			nc.Close()
		})
		return nc
	}
	finished, crashed := make(chan struct{}), make(chan struct{})
	first := drain(workers.Options{Policies: []string{"mail"}, Sink: queue.SinkFunc(
		func(e queue.Event) {
			if e.Type == queue.EventDone {
				close(finished)
				<-crashed
			}
		})})
	if status, answer := ask(t, p, "POST", "/v1/jobs/mail/a", "x", job.HeaderCallback,
		r.URL); status != 202 {
		t.Fatal(answer)
	}
	waittest.Receive(t, finished)
	if n := depth(t, p, "mail"); n != 1 {
		t.Errorf("%d jobs are left", n)
	}
	first.Close()
	close(crashed)
	again := make(chan struct{}, 10)
	drain(workers.Options{Sink: queue.SinkFunc(func(e queue.Event) {
		if e.Type == queue.EventDone && e.Policy == "mail" {
			again <- struct{}{}
		}
	})})
	waittest.Receive(t, again)
	waittest.Until(t, "nothing is left to do", func() bool {
		return depth(t, p, "mail")+depth(t, p, "calls") == 0
	})
	if n := len(r.called); n != 1 {
		t.Errorf("posted %d times", n)
	}
}

func TestALostCallbackIsReported(t *testing.T) {
	r := receiving(t)
	var mu sync.Mutex
	lost := map[string]int{}
	o := penstock.Options{Policies: calling(t, 2), AllowTargets: here}
	o.Sink = queue.SinkFunc(func(e queue.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Type == queue.EventCallbackLost {
			lost[e.Policy+" "+e.Name]++
		}
	})
	p := open(t, o)
	p.Handle("mail", func(context.Context, workers.Job) error { return nil })
	run(t, p)
	if status, answer := ask(t, p, "POST", "/v1/pause/calls", ""); status != 200 {
		t.Fatal(answer)
	}
	waitUntilPaused(t, p, "/v1/buckets/calls/any")
	told := make(chan queue.Event, 10)
	stop, err := beside(t, p).Events().Listen("mail", ">", func(_ string, e queue.Event) {
		if e.Type == queue.EventCallbackLost {
			told <- e
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for range 3 {
		if status, answer := ask(t, p, "POST", "/v1/jobs/mail/a?wait=1m", "x",
			job.HeaderCallback, r.URL); status != 200 || !strings.Contains(answer, `"done"`) {
			t.Fatalf("%d %s", status, answer)
		}
	}
	if e := waittest.Receive(t, told); e.Job != "mail:3" || e.Reason != "full" {
		t.Errorf("told %+v", e)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(lost) != 1 || lost["mail full"] != 1 {
		t.Errorf("counted %v", lost)
	}
}
