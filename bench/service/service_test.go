package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func httpServer(s *httptest.Server) server {
	return server{"http": s.Listener.Addr().String()}
}

func TestAClientReadsWholeAnswers(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if r.URL.Path == "/chunks" {
			for range 3 {
				_, _ = w.Write(got)
				_ = http.NewResponseController(w).Flush()
			}
			return
		}
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write(got)
	}))
	defer server.Close()
	to := httpServer(server)
	for path, want := range map[string]struct {
		status int
		body   string
	}{"/": {202, "text"}, "/chunks": {200, "texttexttext"}} {
		c, err := overHTTP(to, 1, want.status, func(int) []byte {
			return request("POST", path, []byte("text"))
		}).open(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer c.close()
		c.(*httpClient).inBody = func(body []byte) error {
			if string(body) != want.body {
				t.Errorf("%s: read %q, want %q", path, body, want.body)
			}
			return nil
		}
		for range 3 {
			if err := c.ask(t.Context()); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
		}
	}
}

func TestAnotherStatusIsAnError(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	_, err := overHTTP(httpServer(server), 2, 200, func(int) []byte {
		return request("GET", "/", nil)
	}).run(t.Context(), time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "answered 404, want 200") {
		t.Error(err)
	}
}

type failing struct{ n int }

func (f *failing) close() {}

func (f *failing) ask(context.Context) error {
	if f.n--; f.n == 0 {
		return errors.New("no more")
	}
	return nil
}

func TestALoadEndsWithItsFirstFailure(t *testing.T) {
	_, err := load{nil, 1, 1, func(context.Context, int) (client, error) {
		return &failing{3}, nil
	}}.run(t.Context(), time.Hour)
	if err == nil || err.Error() != "no more" {
		t.Error(err)
	}
}

// Ratios are computed within a round, because the machine's speed varies.
func TestRatiosAreOfTheSameRound(t *testing.T) {
	at := func(rates ...float64) (samples []sample) {
		for _, r := range rates {
			samples = append(samples, sample{perSecond: r, p50: time.Duration(1e9 / r),
				p99: time.Duration(2e9 / r)})
		}
		return samples
	}
	r := report{rows: []row{
		{name: "base", samples: at(100, 1000, 10)},
		{name: "half", base: "base", atLeast: 0.5, samples: at(50, 500, 5)},
		{name: "less", base: "base", atLeast: 0.6, samples: at(50, 500, 5)},
		{name: "slow", base: "base", atLeast: 0.4, mostP50: 1.5, samples: at(50, 500, 5)},
		{name: "late", base: "base", mostP99: 1.5, samples: at(50, 500, 5)},
	}}
	for name, want := range map[string]string{
		"base": "", "half": "ok", "less": "MISSED", "slow": "MISSED", "late": "MISSED",
	} {
		if got := r.verdict(r.row(name)); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if text := r.table().Markdown(); !strings.Contains(text, "| half | 50 |") {
		t.Errorf("the table is\n%s", text)
	}
}
