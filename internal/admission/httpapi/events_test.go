package httpapi

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/penstock-mq/penstock/internal/admission/access"
	"github.com/penstock-mq/penstock/internal/admission/manage"
	"github.com/penstock-mq/penstock/internal/admission/watch"
	"github.com/penstock-mq/penstock/internal/kit/brokertest"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
)

type stream struct {
	t     *testing.T
	lines *bufio.Scanner
}

func (s stream) expect(words string) (line string) {
	s.t.Helper()
	for s.lines.Scan() {
		if line = s.lines.Text(); strings.HasPrefix(line, words) {
			return line
		}
	}
	s.t.Fatalf("the stream ends before %q: %v", words, s.lines.Err())
	return ""
}

func TestEventsAreFilteredByRights(t *testing.T) {
	_, nc := brokertest.Start(t, embedded.Options{})
	broker := brokertest.Open(t, nc)
	w := watch.New(broker)
	var clients atomic.Pointer[access.Clients]
	clients.Store(clientsOf(t, "all rights: [read], policies: ['*']",
		"one rights: [read], policies: [mail], keys: [ann]",
		"none rights: [submit], policies: ['*']")())
	api := httptest.NewServer(New(&fakeService{}, Options{Clients: clients.Load,
		Management: manage.New(broker, nil, manage.Options{Watch: w})}))
	t.Cleanup(api.Close)
	t.Cleanup(w.Close)
	ask := func(status int, client, query string, header ...string) stream {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, api.URL+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+client)
		if len(header) > 0 {
			r.Header.Set("Last-Event-ID", header[0])
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { response.Body.Close() })
		if response.StatusCode != status {
			t.Fatalf("%s%s: %s, want %d", client, query, response.Status, status)
		}
		return stream{t, bufio.NewScanner(response.Body)}
	}
	all, one := ask(200, "all", "/v1/events"), ask(200, "one", "/v1/events")
	some := ask(200, "all", "/v1/events?policy=mail&key=bob&type=dead,done")
	for _, s := range []stream{all, one, some} {
		s.expect(": events")
	}
	for _, e := range []queue.Event{
		{Type: queue.EventStarted, Key: "bob", Job: "mail:1", WaitMS: 3},
		{Type: queue.EventDone, Key: "bob", Job: "mail:1", DurationMS: 5},
		{Type: queue.EventDone, Key: "ann", Job: "mail:2"},
	} {
		broker.Events().Publish("mail", e)
	}
	first := strings.TrimPrefix(all.expect("id: "), "id: ")
	all.expect("event: started")
	if data := all.expect("data: "); !strings.Contains(data, `"type":"started","policy":"mail",`+
		`"key":"bob","job":"mail:1","wait_ms":3}`) {
		t.Errorf("the event is %s", data)
	}
	if data := one.expect("data: "); !strings.Contains(data, `"job":"mail:2"`) {
		t.Errorf("who may see one key sees %s", data)
	}
	if data := some.expect("data: "); !strings.Contains(data, `"type":"done"`) {
		t.Errorf("who asks for ends sees %s", data)
	}
	again := ask(200, "all", "/v1/events", first)
	if data := again.expect("data: "); !strings.Contains(data, `"type":"done"`) {
		t.Errorf("who comes back sees %s", data)
	}
	ask(200, "all", "/v1/events", "nonsense").expect("event: missed")
	ask(403, "none", "/v1/events")
	ask(400, "all", "/v1/events?type=dying")
	ask(400, "all", "/v1/events?policy=")
	ask(400, "all", "/v1/events?kind=dead")
	ask(403, "none", "/v1/stats")
	if body := ask(200, "one", "/v1/stats").expect("{"); !strings.Contains(body, `"policies":[]`) {
		t.Errorf("who may see one key sees the figures of all: %s", body)
	}
	if body := ask(200, "all", "/v1/stats").expect("{"); !strings.Contains(body, `"done":2,`) {
		t.Errorf("the figures are %s", body)
	}

	clients.Store(clientsOf(t, "all rights: [read], policies: ['*']")())
	broker.Events().Publish("mail", queue.Event{Type: queue.EventDone, Key: "ann", Job: "mail:3"})
	if data := one.expect("data: "); data != `data: {"reason":"ask again"}` {
		t.Errorf("who may no longer see anything sees %s", data)
	}
	ask(401, "one", "/v1/events")
	for all.expect("data: ") != `data: {"reason":"ask again"}` {
	}
	all = ask(200, "all", "/v1/events")
	w.Close()
	all.expect(`data: {"reason":"stopping"}`)
}

func TestAClientHasItsShareOfTheStreams(t *testing.T) {
	_, nc := brokertest.Start(t, embedded.Options{})
	broker := brokertest.Open(t, nc)
	w := watch.New(broker)
	api := httptest.NewServer(New(&fakeService{}, Options{
		Clients: clientsOf(t, "all rights: [read], policies: ['*']",
			"weak rights: [read], policies: [mail], keys: [ann]"),
		Management: manage.New(broker, nil, manage.Options{Watch: w})}))
	t.Cleanup(api.Close)
	t.Cleanup(w.Close)
	ask := func(client string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, api.URL+"/v1/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+client)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { response.Body.Close() })
		return response
	}
	refused := ask("weak")
	for range watch.MaxListeners {
		if refused.StatusCode == http.StatusOK {
			refused = ask("weak")
		}
	}
	text, err := io.ReadAll(refused.Body)
	if err != nil || refused.StatusCode != http.StatusServiceUnavailable ||
		!strings.Contains(string(text), `"reason":"busy"`) {
		t.Errorf("beyond its share: %s %s, %v", refused.Status, text, err)
	}
	if operator := ask("all"); operator.StatusCode != http.StatusOK {
		t.Errorf("an operator: %s", operator.Status)
	}
}
