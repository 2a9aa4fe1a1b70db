package httpapi

import (
	"cmp"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/admission/manage"
	"github.com/penstock-mq/penstock/internal/kit/brokertest"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
)

type installation struct {
	t      *testing.T
	broker *jet.Broker
	url    string
}

func install(t *testing.T, o manage.Options) *installation {
	t.Helper()
	_, nc := brokertest.Start(t, embedded.Options{})
	broker := brokertest.Open(t, nc)
	o.Timeout = cmp.Or(o.Timeout, 25*time.Second)
	service := manage.New(broker, broker.NewProducer(jet.ProducerOptions{}), o)
	api := httptest.NewServer(New(&fakeService{}, Options{Management: service}))
	t.Cleanup(api.Close)
	return &installation{t, broker, api.URL}
}

// do sends a request with its escapes and header fields (names and values in turn).
func (i *installation) do(method, path, body string,
	fields ...string) (response *http.Response, answer string) {
	i.t.Helper()
	request, err := http.NewRequestWithContext(i.t.Context(), method, i.url,
		strings.NewReader(body))
	if err != nil {
		i.t.Fatal(err)
	}
	request.URL.Opaque = strings.TrimPrefix(i.url, "http:") + path
	for n := 0; n < len(fields); n += 2 {
		request.Header.Add(fields[n], fields[n+1])
	}
	response, err = http.DefaultClient.Do(request)
	if err != nil {
		i.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		i.t.Fatal(err)
	}
	return response, string(text)
}

func (i *installation) ask(method, path, body string) (int, string) {
	i.t.Helper()
	response, answer := i.do(method, path, body)
	want := "application/json"
	if response.StatusCode >= 400 {
		want = "application/problem+json"
		if response.StatusCode == 405 && response.Header.Get("Allow") == "" {
			i.t.Errorf("%s %s: 405 without Allow", method, path)
		}
	}
	if got := response.Header.Get("Content-Type"); got != want {
		i.t.Errorf("%s %s: %d with content type %q", method, path, response.StatusCode, got)
	}
	return response.StatusCode, answer
}

func (i *installation) expect(method, path, body string, status int, parts ...string) string {
	i.t.Helper()
	got, answer := i.ask(method, path, body)
	if got != status {
		i.t.Errorf("%s %s: %d %s, want %d", method, path, got, answer, status)
		return answer
	}
	for _, part := range parts {
		if !strings.Contains(answer, part) {
			i.t.Errorf("%s %s: %s, without %s", method, path, answer, part)
		}
	}
	return answer
}

func (i *installation) publish(policy, key string, header nats.Header) jet.Receipt {
	i.t.Helper()
	k, err := queue.EncodeKey(key)
	if err != nil {
		i.t.Fatal(err)
	}
	receipt, err := i.broker.NewProducer(jet.ProducerOptions{}).
		Publish(i.t.Context(), jet.Submission{
			Policy: policy, Key: k, Header: header, Body: []byte("body")})
	if err != nil {
		i.t.Fatal(err)
	}
	return receipt
}

func (i *installation) bury(d jet.DeadLetter) {
	i.t.Helper()
	if d.Stored.IsZero() {
		d.Stored = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	}
	if _, err := i.broker.Letters(d.Policy).Bury(i.t.Context(), d); err != nil {
		i.t.Fatal(err)
	}
}

// valve answers for one partition until the test ends.
func (i *installation) valve(policy string, partition int, answer func(job.Question) job.Answer) {
	i.t.Helper()
	stop, err := i.broker.ServeValve(policy, partition, func(q job.Question,
		reply func(job.Answer)) {
		reply(answer(q))
	})
	if err != nil {
		i.t.Fatal(err)
	}
	i.t.Cleanup(stop)
}

const stripe = `{"algorithm":"leaking_bucket","outflow":"96/s","capacity":2,"partitions":4}`
