package admit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/admission/limiter"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/admission/httpapi"
	"github.com/penstock-mq/penstock/internal/admission/natsapi"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/store"
	"github.com/penstock-mq/penstock/internal/server/lifecycle"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/embedded"
)

type house struct {
	t         testing.TB
	broker    *jet.Broker
	service   *admit.Service
	client    *nats.Conn
	url       string
	published *atomic.Int64
}

type counted struct {
	admit.Publisher
	n *atomic.Int64
}

func (c counted) Send(ctx context.Context, s jet.Submission) (
	wait func(context.Context) (jet.Receipt, error)) {

	c.n.Add(1)
	return c.Publisher.Send(ctx, s)
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
	broker, err := jet.NewBroker(connect(), jet.Options{})
	must(err)
	must(broker.Setup(t.Context()))
	h := &house{t: t, broker: broker, client: connect(), published: new(atomic.Int64)}
	producer := counted{broker.NewProducer(jet.ProducerOptions{}), h.published}
	h.service = admit.New(broker.Names(), producer, broker,
		limiter.New(limiter.Options{}).Limit, admit.Options{})
	for _, p := range policies {
		must(broker.Apply(t.Context(), p))
		_, err := store.New(broker, nil).Put(t.Context(), p)
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
			natsapi.Serve(connect(), broker.Names(), h.service,
				natsapi.Options{Started: func() { close(listening) }}),
			func(ctx context.Context) error {
				return store.New(broker, nil).Watch(ctx, func(set inforce.Entries, names []string) {
					if err := h.service.SetPolicies(set, names...); err != nil {
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

type reply struct {
	status int
	header http.Header
	body   string
	fields map[string]any
}

var transports = map[string]func(h *house, call, policy, key string, body []byte,
	header ...string) reply{
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
	answer, err := h.client.RequestMsg(m, waittest.Patience())
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

func (h *house) serveValves(p policy.Policy, answer func(job.Question) job.Answer) {
	h.t.Helper()
	owner, err := jet.NewBroker(h.client, jet.Options{})
	if err != nil {
		h.t.Fatal(err)
	}
	for i := range p.WithDefaults().Partitions {
		stop, err := owner.ServeValve(p.Name, i, func(q job.Question, reply func(job.Answer)) {
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
	stripe = policy.Policy{Name: "stripe",
		Rule: policy.Rule{Algorithm: policy.LeakingBucket, Outflow: rate("10/m"), Capacity: 3}}
	door = policy.Policy{Name: "door",
		Rule: policy.Rule{Algorithm: policy.TokenBucket, Capacity: 5, Refill: rate("1/h")}}
	search = policy.Policy{Name: "search",
		Rule:  policy.Rule{Algorithm: policy.TokenBucket, Capacity: 5, Refill: rate("1/h")},
		Queue: &policy.Queue{Capacity: 3}}
)
