package admission_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/admission/httpapi"
	"github.com/penstock-mq/penstock/admission/limiter"
	"github.com/penstock-mq/penstock/admission/natsapi"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/lifecycle"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
)

// house is an admitter on an embedded server, without the process around it.
type house struct {
	t         testing.TB
	broker    *queue.Broker
	service   *admission.Service
	client    *nats.Conn // a user's
	url       string
	published *atomic.Int64 // publishes by the service
}

// counted counts publishes.
type counted struct {
	admission.Publisher
	n *atomic.Int64
}

func (c counted) Publish(ctx context.Context, s queue.Submission) (queue.Receipt, error) {
	c.n.Add(1)
	return c.Publisher.Publish(ctx, s)
}

func open(t testing.TB, policies ...policy.Policy) *house {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir()})
	must(err)
	t.Cleanup(server.Shutdown)
	connect := func() *nats.Conn {
		t.Helper()
		nc, err := server.Connect()
		must(err)
		t.Cleanup(nc.Close)
		return nc
	}
	broker, err := queue.NewBroker(connect(), queue.Options{})
	must(err)
	must(broker.Setup(t.Context()))
	h := &house{t: t, broker: broker, client: connect(), published: new(atomic.Int64)}
	producer := counted{broker.NewProducer(queue.ProducerOptions{}), h.published}
	h.service = admission.New(broker.Names(), producer, broker, limiter.New(limiter.Options{}).Limit, admission.Options{})
	for _, p := range policies {
		must(broker.Apply(t.Context(), p))
		_, err := broker.PutPolicy(t.Context(), p)
		must(err)
	}

	front := httptest.NewServer(httpapi.New(h.service, httpapi.Options{}))
	h.url = front.URL
	ctx, stop := context.WithCancel(context.Background())
	listening, known := make(chan struct{}), make(chan struct{})
	var once sync.Once
	ended := make(chan error, 1)
	go func() {
		ended <- lifecycle.Run(ctx,
			natsapi.Serve(connect(), broker.Names(), h.service, natsapi.Options{Started: func() { close(listening) }}),
			func(ctx context.Context) error {
				return broker.WatchPolicies(ctx, func(set queue.PolicySet) {
					if err := h.service.SetPolicies(set); err != nil {
						t.Error(err)
					}
					once.Do(func() { close(known) })
				})
			})
	}()
	t.Cleanup(func() {
		front.Close()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-listening
	<-known
	return h
}

// reply is an answer over either transport.
type reply struct {
	status int
	header http.Header // canonical names
	body   string
	fields map[string]any
}

// transports are the two ways to ask.
var transports = map[string]func(h *house, call, policy, key string, body []byte, header ...string) reply{
	"HTTP": (*house).overHTTP,
	"NATS": (*house).overNATS,
}

func (h *house) overHTTP(call, policy, key string, body []byte, header ...string) reply {
	h.t.Helper()
	path := map[string]string{"submit": "/v1/jobs/", "check": "/v1/check/"}[call]
	r, err := http.NewRequest(http.MethodPost, h.url+path+policy+"/"+key, bytes.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return h.reply(response.StatusCode, response.Header, text)
}

func (h *house) overNATS(call, policy, key string, body []byte, header ...string) reply {
	h.t.Helper()
	m := nats.NewMsg("penstock." + call + "." + policy + "." + key)
	m.Data = body
	for i := 0; i < len(header); i += 2 {
		m.Header.Add(header[i], header[i+1])
	}
	answer, err := h.client.RequestMsg(m, 10*time.Second)
	if err != nil {
		h.t.Fatalf("%s: %v", m.Subject, err)
	}
	status, err := strconv.Atoi(answer.Header.Get(natsapi.StatusHeader))
	if err != nil {
		h.t.Fatalf("%v: %v", answer.Header, err)
	}
	canonical := http.Header{}
	for name, values := range answer.Header {
		canonical.Set(name, values[0])
	}
	return h.reply(status, canonical, answer.Data)
}

func (h *house) reply(status int, header http.Header, body []byte) reply {
	h.t.Helper()
	r := reply{status: status, header: header, body: string(body)}
	if err := json.Unmarshal(body, &r.fields); err != nil {
		h.t.Fatalf("%d %q: %v", status, body, err)
	}
	return r
}

// serveValves answers for all partitions of a policy.
func (h *house) serveValves(p policy.Policy, answer func(queue.ValveQuestion) queue.ValveAnswer) {
	h.t.Helper()
	owner, err := queue.NewBroker(h.client, queue.Options{})
	if err != nil {
		h.t.Fatal(err)
	}
	for i := range p.WithDefaults().Partitions {
		stop, err := owner.ServeValve(p.Name, i, func(q queue.ValveQuestion, reply func(queue.ValveAnswer)) {
			reply(answer(q))
		})
		if err != nil {
			h.t.Fatal(err)
		}
		h.t.Cleanup(stop)
	}
	if err := h.client.Flush(); err != nil {
		h.t.Fatal(err)
	}
}

func rate(s string) algorithms.Rate {
	r, err := algorithms.ParseRate(s)
	if err != nil {
		panic(err)
	}
	return r
}

var (
	stripe = policy.Policy{Name: "stripe", Algorithm: policy.LeakingBucket, Outflow: rate("10/m"), Capacity: 3}
	door   = policy.Policy{Name: "door", Algorithm: policy.TokenBucket, Capacity: 5, Refill: rate("1/h")}
	search = policy.Policy{Name: "search", Algorithm: policy.TokenBucket, Capacity: 5, Refill: rate("1/h"),
		Queue: &policy.Queue{Capacity: 3}}
)

func TestJobsAreStoredAsTheyCame(t *testing.T) {
	h := open(t, stripe, search)
	js, err := jetstream.New(h.client)
	if err != nil {
		t.Fatal(err)
	}
	body := []byte("pay\x00 \xff\xfe")
	for _, p := range []string{"stripe", "search"} {
		stream, err := js.Stream(t.Context(), "PENSTOCK_"+p)
		if err != nil {
			t.Fatal(err)
		}
		for transport, ask := range transports {
			form, err := queue.EncodeKey("käse/..//" + transport)
			if err != nil {
				t.Fatal(err)
			}
			key := map[string]string{"HTTP": "k%C3%A4se/..//" + transport, "NATS": string(form)}[transport]
			r := ask(h, "submit", p, key, body, "penstock-deadline", "1h", "Content-Type", "text/x", "X-Private", "no",
				"Penstock-Forward-X-Tenant", "acme", "Idempotency-Key", "order 1", "traceparent", "00-1-2-01")
			if r.status != 202 || r.fields["verdict"] != "queued" {
				t.Fatalf("%s: %d %s", transport, r.status, r.body)
			}
			policy, number, _ := strings.Cut(r.fields["job"].(string), ":")
			seq, err := strconv.ParseUint(number, 10, 64)
			if err != nil || policy != p {
				t.Fatalf("job %v", r.fields["job"])
			}
			m, err := stream.GetMsg(t.Context(), seq)
			if err != nil {
				t.Fatal(err)
			}
			_, stored, err := h.broker.Names().ParseQueue(m.Subject)
			if err != nil || stored.Raw() != "käse/..//"+transport || !bytes.Equal(m.Data, body) {
				t.Errorf("%s: stored %s, %v, body %q", transport, m.Subject, err, m.Data)
			}
			for name, want := range map[string]string{
				"Penstock-Deadline":         "1h",
				"Content-Type":              "text/x",
				"X-Private":                 "",
				"Penstock-Forward-X-Tenant": "acme",
				"Idempotency-Key":           "order 1",
				"traceparent":               "00-1-2-01",
				"Nats-Msg-Id":               string(stored) + "/order 1",
			} {
				if got := m.Header.Get(name); got != want {
					t.Errorf("%s: header %s is %q, want %q", transport, name, got, want)
				}
			}
		}
	}
}

func TestVerdictsComeFromTheValve(t *testing.T) {
	h := open(t, stripe)
	h.serveValves(stripe, func(q queue.ValveQuestion) queue.ValveAnswer {
		a := queue.ValveAnswer{DelayMS: 2500}
		for _, seq := range q.Jobs {
			a.Starts = append(a.Starts, queue.ExpectedStart{Seq: seq, Known: true, DelayMS: int64(seq-1) * 6000})
		}
		return a
	})
	for i, want := range []string{
		`{"verdict":"allowed","job":"stripe:1","delay_ms":0}`,
		`{"verdict":"queued","job":"stripe:2","delay_ms":6000}`,
		`{"verdict":"queued","job":"stripe:3","delay_ms":12000}`,
	} {
		if r := h.overHTTP("submit", "stripe", "acme", nil); r.status != 202 || r.body != want {
			t.Errorf("job %d: %d %s, want %s", i+1, r.status, r.body, want)
		}
	}
	r := h.overHTTP("submit", "stripe", "acme", nil)
	if r.status != 429 || r.fields["verdict"] != "rejected" || r.fields["retry_after_ms"].(float64) > 2500 ||
		r.header.Get("Retry-After") != "3" || r.header.Get("X-Ratelimit-Retry-After") != "3" ||
		r.header.Get("X-Ratelimit-Limit") != "3" || r.header.Get("X-Ratelimit-Remaining") != "0" ||
		r.header.Get("RateLimit-Policy") != `"stripe";q=3;w=18` || r.header.Get("RateLimit") != `"stripe";r=0;t=3` {
		t.Errorf("%d %v %s", r.status, r.header, r.body)
	}
}

func TestARepeatGetsTheFirstAnswerEvenFromAFullBucket(t *testing.T) {
	for _, p := range []policy.Policy{stripe, search} {
		for transport, ask := range transports {
			t.Run(p.Name+" "+transport, func(t *testing.T) {
				h := open(t, p)
				h.t = t
				first := ask(h, "submit", p.Name, "acme", nil, "Idempotency-Key", "order-1")
				for range 2 {
					ask(h, "submit", p.Name, "acme", nil)
				}
				if r := ask(h, "submit", p.Name, "acme", nil, "Idempotency-Key", "order-2"); r.status != 429 {
					t.Fatalf("the bucket is not full: %d %s", r.status, r.body)
				}
				r := ask(h, "submit", p.Name, "acme", nil, "Idempotency-Key", "order-1")
				if r.status != 202 || r.body != first.body {
					t.Errorf("the repeat got %d %s, the first %s", r.status, r.body, first.body)
				}
			})
		}
	}
}

func TestTwoTenantsWithOneIdempotencyKeyAreTwoJobs(t *testing.T) {
	h := open(t, stripe)
	jobs := map[any]bool{}
	for _, tenant := range []string{"a", "b"} {
		for _, ask := range transports {
			jobs[ask(h, "submit", "stripe", tenant, nil, "Idempotency-Key", "order-1").fields["job"]] = true
		}
	}
	if len(jobs) != 2 {
		t.Errorf("jobs %v, want two", jobs)
	}
	if depth, err := h.broker.Depth(t.Context(), "stripe"); err != nil || depth != 2 {
		t.Errorf("%d jobs are stored, %v", depth, err)
	}
}

func TestAFloodAtAFullBucketCostsNoPublishes(t *testing.T) {
	h := open(t, stripe) // one interval is 6 s, so a refusal is remembered for a second
	for range 3 {
		h.overHTTP("submit", "stripe", "acme", nil)
	}
	began := time.Now()
	var flood sync.WaitGroup
	var rejected atomic.Int64
	for range 8 {
		flood.Go(func() {
			for range 100 {
				r := h.overHTTP("submit", "stripe", "acme", nil)
				if r.status == 429 && r.header.Get("Retry-After") != "" {
					rejected.Add(1)
				}
			}
		})
	}
	flood.Wait()
	// Each second of the flood, at most as many as came before the first was refused.
	most := int64(3 + 8*(1+int(time.Since(began).Seconds())))
	if n := h.published.Load(); n > most || rejected.Load() != 800 {
		t.Errorf("%d publishes for 800 requests, of which %d were rejected; want at most %d", n, rejected.Load(), most)
	}
}

func TestDoorsAreCheckedBeforeTheirQueue(t *testing.T) {
	h := open(t, door, search)
	for i := range 7 {
		r := h.overNATS("check", "door", "acme", nil)
		if want := map[bool]int{true: 200, false: 429}[i < 5]; r.status != want {
			t.Errorf("check %d: %d %s", i+1, r.status, r.body)
		}
	}
	r := h.overHTTP("check", "door", "acme", nil)
	if r.status != 429 || r.fields["allowed"] != false || r.header.Get("Retry-After") == "" ||
		r.header.Get("RateLimit-Policy") != `"door";q=5;w=18000` {
		t.Errorf("%d %v %s", r.status, r.header, r.body)
	}
	// Three jobs fill the queue; the fourth gets its token back, so that five checks' worth were never used up.
	for i := range 4 {
		r := h.overHTTP("submit", "search", "acme", nil)
		if want := map[bool]int{true: 202, false: 429}[i < 3]; r.status != want {
			t.Errorf("job %d: %d %s", i+1, r.status, r.body)
		}
	}
	if r := h.overHTTP("check", "search", "acme", nil); r.status != 200 || r.fields["remaining"] != 1.0 {
		t.Errorf("after the refund: %d %s", r.status, r.body)
	}
}

func TestWrongQuestions(t *testing.T) {
	h := open(t, stripe, door)
	retired := door
	retired.Name = "retired"
	set := queue.PolicySet{"retired": {Policy: retired, Revision: 1, Retired: true}}
	for _, p := range []policy.Policy{stripe, door} {
		set[p.Name] = queue.PolicyEntry{Policy: p, Revision: 1}
	}
	if err := h.service.SetPolicies(set); err != nil {
		t.Fatal(err)
	}
	for transport, ask := range transports {
		long := strings.Repeat("x", 300)
		for _, c := range []struct {
			call, policy, key string
			body              []byte
			header            []string
			status            int
			detail            string
		}{
			{"submit", "nobody", "k", nil, nil, 404, "nobody"},
			{"check", "nobody", "k", nil, nil, 404, "nobody"},
			{"check", "retired", "k", nil, nil, 404, "has retired"},
			{"submit", "UPPER", "k", nil, nil, 404, "UPPER"},
			{"check", "stripe", "k", nil, nil, 409, "paced by its queue"},
			{"submit", "door", "k", nil, nil, 409, "no queue"},
			{"submit", "stripe", "k", make([]byte, admission.MaxBody+1), nil, 413, ""},
			{"submit", "stripe", "k", nil, []string{"Penstock-Prioritty", "1"}, 400, "Penstock-Prioritty"},
			{"submit", "stripe", "k", nil, []string{"Penstock-Deadline", "soon"}, 400, "Penstock-Deadline"},
			{"submit", "stripe", "k", nil, []string{"Penstock-Cost", "-1"}, 400, "Penstock-Cost"},
			{"submit", "stripe", "k", nil, []string{"Idempotency-Key", long}, 400, "Idempotency-Key"},
			{"submit", "stripe", "k", nil, []string{"Content-Type", "a", "Content-Type", "b"}, 400, "Content-Type"},
			{"check", "door", "k", nil, []string{"Penstock-Cost", "6"}, 400, "can never pass"},
			{"check", "door", "k", nil, []string{"Penstock-Cost", "0"}, 400, "at least 1"},
			{"check", "door", "k", nil, []string{"Penstock-Cost", "9223372036854775807"}, 400, "can never pass"},
			{"submit", "stripe", "%ff", nil, nil, 400, "key"},
		} {
			r := ask(h, c.call, c.policy, c.key, c.body, c.header...)
			detail, _ := r.fields["detail"].(string)
			if r.status != c.status || !strings.Contains(detail, c.detail) {
				t.Errorf("%s %s %s %v: %d %s, want %d and %q", transport, c.call, c.policy, c.header, r.status, r.body,
					c.status, c.detail)
			}
			if got := r.header.Get("Content-Type"); got != "application/problem+json" {
				t.Errorf("%s: content type %q", transport, got)
			}
		}
	}
	if n := h.published.Load(); n != 0 {
		t.Errorf("%d publishes of wrong questions", n)
	}
}

func TestPolicyChangesApplyWithinASecond(t *testing.T) {
	h := open(t, door)
	for range 5 {
		h.overHTTP("check", "door", "acme", nil)
	}
	larger := door
	larger.Capacity = 8
	if _, err := h.broker.PutPolicy(t.Context(), larger); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for h.overHTTP("check", "door", "other", nil).header.Get("X-Ratelimit-Limit") != "8" {
		if time.Since(began) > time.Second {
			t.Fatal("the change did not apply within a second")
		}
	}
	// What was used stays used.
	if r := h.overHTTP("check", "door", "acme", nil, "Penstock-Cost", "4"); r.status != 429 {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := h.overHTTP("check", "door", "acme", nil, "Penstock-Cost", "3"); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func TestAMissingStreamIsUnavailable(t *testing.T) {
	h := open(t)
	if err := h.service.SetPolicies(queue.PolicySet{"stripe": {Policy: stripe, Revision: 1}}); err != nil {
		t.Fatal(err)
	}
	r := h.overHTTP("submit", "stripe", "acme", nil)
	if r.status != 503 || r.header.Get("Retry-After") != "1" ||
		!strings.Contains(r.body, "temporary-reduced-capacity") {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func TestManyProducersAtOnce(t *testing.T) {
	wide := stripe
	wide.Capacity, wide.Partitions = 150, 2
	h := open(t, wide)
	var accepted, rejected atomic.Int64
	var producing sync.WaitGroup
	for i := range 8 {
		ask := transports[[]string{"HTTP", "NATS"}[i%2]]
		producing.Go(func() {
			for n := range 50 {
				switch r := ask(h, "submit", "stripe", "acme", fmt.Appendf(nil, "%d-%d", i, n)); r.status {
				case 202:
					accepted.Add(1)
				case 429:
					rejected.Add(1)
				default:
					t.Errorf("%d %s", r.status, r.body)
				}
			}
		})
	}
	producing.Wait()
	depth, err := h.broker.Depth(t.Context(), "stripe")
	if accepted.Load() != 150 || rejected.Load() != 250 || depth != 150 || err != nil {
		t.Errorf("%d accepted, %d rejected, %d stored, %v; want 150, 250, 150", accepted.Load(), rejected.Load(), depth,
			err)
	}
}
