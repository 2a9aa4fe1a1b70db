package consoletest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers"
)

type world struct {
	*testing.T
	*penstock.Penstock
	base  string
	token string
}

func policies(t *testing.T, lines ...string) (all []policy.Policy) {
	t.Helper()
	for _, line := range lines {
		name, document, _ := strings.Cut(line, " ")
		p, err := policy.Parse([]byte(document))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		p.Name = name
		all = append(all, p)
	}
	return all
}

func settle(t *testing.T, o penstock.Options, handlers map[string]workers.Handler) *world {
	t.Helper()
	if o.URL == "" && o.Server.Dir == "" {
		o.Server.Dir = t.TempDir()
	}
	o.HTTP.Listen = "127.0.0.1:0"
	p, err := penstock.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for name, handle := range handlers {
		p.Handle(name, handle)
	}
	// The test's context ends before its pages are closed, which would then miss the admitter.
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		p.Close()
	})
	select {
	case <-p.Ready():
	case <-time.After(waittest.Patience()):
		t.Fatal("not ready")
	}
	return &world{T: t, Penstock: p, base: "http://" + p.HTTPAddr().String()}
}

func (w *world) ask(method, path, body string, document any) (status int) {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), method, w.base+path, strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	if w.token != "" {
		r.Header.Set("Authorization", "Bearer "+w.token)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		w.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		w.Fatal(err)
	}
	if document != nil {
		if err := json.Unmarshal(text, document); err != nil {
			w.Fatalf("%s %s: %s: %v", method, path, text, err)
		}
	}
	return response.StatusCode
}

func (w *world) submit(policy, key string, n int, body string) {
	w.Helper()
	for done := 0; done < n; done += 10_000 {
		var lines bytes.Buffer
		for range min(10_000, n-done) {
			fmt.Fprintf(&lines, `{"policy":%q,"key":%q,"text":%q}`+"\n", policy, key, body)
		}
		if got := w.ask("POST", "/v1/jobs:batch", lines.String(), nil); got != http.StatusOK {
			w.Fatalf("a batch of %s/%s: %d", policy, key, got)
		}
	}
}

func done(context.Context, workers.Job) error { return nil }
