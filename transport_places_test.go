package penstock_test

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/internal/overlaptest"
	"github.com/penstock-mq/penstock/policy"
)

// Callers close bodies early, and cancel before the answer and in it. The target says whether it
// worked on one request at a time.
func TestACallEndsWhenTheTargetHasEndedIt(t *testing.T) {
	api := paced("api", 1000, 1000)
	api.Concurrency = 1
	p := open(t, penstock.Options{Policies: []policy.Policy{api}})
	run(t, p)
	for name, c := range map[string]struct {
		base  http.RoundTripper
		calls int
	}{
		"the usual connections": {nil, 120},
		"connections of others": {&http.Transport{}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			target := &overlaptest.Target{After: time.Millisecond}
			server := httptest.NewServer(target)
			defer server.Close()
			client := &http.Client{Transport: &penstock.Transport{Permits: p, Policy: "api",
				Base: c.base}}
			var callers sync.WaitGroup
			for range 4 {
				callers.Go(func() {
					for range c.calls / 4 {
						abort(t, client, server.URL)
					}
				})
			}
			callers.Wait()
			target.Check(t)
		})
	}
}

func abort(t *testing.T, client *http.Client, url string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if rand.IntN(2) == 0 {
		defer time.AfterFunc(time.Duration(rand.IntN(20))*time.Millisecond, cancel).Stop()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url,
		strings.NewReader("hello"))
	if err != nil {
		t.Error(err)
		return
	}
	response, err := client.Do(request)
	if err != nil {
		if ctx.Err() == nil {
			t.Error(err)
		}
		return
	}
	_, _ = io.CopyN(io.Discard, response.Body, rand.Int64N(30))
	response.Body.Close()
}
