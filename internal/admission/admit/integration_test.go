package admit_test

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/store"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
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
			key := map[string]string{"HTTP": "k%C3%A4se/..//" + transport,
				"NATS": string(form)}[transport]
			r := ask(h, "submit", p, key, body, "penstock-deadline", "1h", "Content-Type", "text/x",
				"X-Private", "no",
				"Penstock-Forward-X-Tenant", "acme", "Idempotency-Key", "order 1", "traceparent",
				"00-1-2-01")
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
				"Nats-Msg-Id":               string(stored) + " order 1",
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
	h.service.Patient()
	h.serveValves(stripe, func(q job.Question) job.Answer {
		a := job.Answer{DelayMS: 2500}
		for _, seq := range q.Jobs {
			a.Starts = append(a.Starts,
				job.ExpectedStart{Seq: seq, Known: true, DelayMS: int64(seq-1) * 6000})
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
	if r.status != 429 || r.fields["verdict"] != "rejected" ||
		r.fields["retry_after_ms"].(float64) > 2500 ||
		r.header.Get("Retry-After") != "3" || r.header.Get("X-Ratelimit-Retry-After") != "3" ||
		r.header.Get("X-Ratelimit-Limit") != "3" || r.header.Get("X-Ratelimit-Remaining") != "0" ||
		r.header.Get("RateLimit-Policy") != `"stripe";q=3;w=18` ||
		r.header.Get("RateLimit") != `"stripe";r=0;t=3` {
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
				if r := ask(h, "submit", p.Name, "acme", nil, "Idempotency-Key",
					"order-2"); r.status != 429 {
					t.Fatalf("the bucket is not full: %d %s", r.status, r.body)
				}
				r := ask(h, "submit", p.Name, "acme", nil, "Idempotency-Key", "order-1")
				if r.status != 202 || r.fields["job"] != first.fields["job"] ||
					r.fields["duplicate"] != true ||
					r.header.Get("Idempotent-Replayed") != "true" ||
					first.fields["duplicate"] != nil {
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
			jobs[ask(h, "submit", "stripe", tenant, nil, "Idempotency-Key",
				"order-1").fields["job"]] = true
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
	// Each second admits at most the number of requests before the first refusal.
	most := int64(3 + 8*(1+int(time.Since(began).Seconds())))
	if n := h.published.Load(); n > most || rejected.Load() != 800 {
		t.Errorf("%d publishes for 800 requests, of which %d were rejected; want at most %d", n,
			rejected.Load(), most)
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
	// Three jobs fill the queue; the fourth gets its token back, so five checks remain.
	for i := range 4 {
		r := h.overHTTP("submit", "search", "acme", nil)
		if want := map[bool]int{true: 202, false: 429}[i < 3]; r.status != want {
			t.Errorf("job %d: %d %s", i+1, r.status, r.body)
		}
	}
	if r := h.overHTTP("check", "search", "acme", nil); r.status != 200 ||
		r.fields["remaining"] != 1.0 {
		t.Errorf("after the refund: %d %s", r.status, r.body)
	}
}

func TestWrongQuestions(t *testing.T) {
	h := open(t, stripe, door)
	retired := door
	retired.Name = "retired"
	set := inforce.Entries{"retired": {Policy: retired, Revision: 1, Draining: true}}
	for _, p := range []policy.Policy{stripe, door} {
		set[p.Name] = &inforce.Entry{Policy: p, Revision: 1}
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
			{"check", "retired", "k", nil, nil, 404, "is draining"},
			{"submit", "UPPER", "k", nil, nil, 404, "UPPER"},
			{"check", "stripe", "k", nil, nil, 409, "has a queue: submit jobs"},
			{"submit", "door", "k", nil, nil, 409, "no queue"},
			{"submit", "stripe", "k", make([]byte, admission.MaxBody+1), nil, 413, ""},
			{"submit", "stripe", "k", nil, []string{"Penstock-Prioritty", "1"}, 400,
				"Penstock-Prioritty"},
			{"submit", "stripe", "k", nil, []string{"Penstock-Deadline", "soon"}, 400,
				"Penstock-Deadline"},
			{"submit", "stripe", "k", nil, []string{"Penstock-Cost", "-1"}, 400, "Penstock-Cost"},
			{"submit", "stripe", "k", nil, []string{"Idempotency-Key", long}, 400,
				"Idempotency-Key"},
			{"submit", "stripe", "k", nil, []string{"Content-Type", "a", "Content-Type", "b"}, 400,
				"Content-Type"},
			{"check", "door", "k", nil, []string{"Penstock-Cost", "6"}, 400, "can never pass"},
			{"check", "door", "k", nil, []string{"Penstock-Cost", "0"}, 400, "at least 1"},
			{"check", "door", "k", nil, []string{"Penstock-Cost", "9223372036854775807"}, 400,
				"can never pass"},
			{"submit", "stripe", "%ff", nil, nil, 400, "key"},
		} {
			r := ask(h, c.call, c.policy, c.key, c.body, c.header...)
			detail, _ := r.fields["detail"].(string)
			if r.status != c.status || !strings.Contains(detail, c.detail) {
				t.Errorf("%s %s %s %v: %d %s, want %d and %q", transport, c.call, c.policy,
					c.header, r.status, r.body,
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
	if _, err := store.New(h.broker, nil).Put(t.Context(), larger); err != nil {
		t.Fatal(err)
	}
	waittest.Within(t, time.Second, "the change applied", func() bool {
		return h.overHTTP("check", "door", "other", nil).header.Get("X-Ratelimit-Limit") == "8"
	})
	if r := h.overHTTP("check", "door", "acme", nil, "Penstock-Cost", "4"); r.status != 429 {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := h.overHTTP("check", "door", "acme", nil, "Penstock-Cost", "3"); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func TestAMissingStreamIsUnavailable(t *testing.T) {
	h := open(t)
	if err := h.service.SetPolicies(
		inforce.Entries{"stripe": {Policy: stripe, Revision: 1}}); err != nil {
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
				switch r := ask(h, "submit", "stripe", "acme",
					fmt.Appendf(nil, "%d-%d", i, n)); r.status {
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
		t.Errorf("%d accepted, %d rejected, %d stored, %v; want 150, 250, 150", accepted.Load(),
			rejected.Load(), depth,
			err)
	}
}
