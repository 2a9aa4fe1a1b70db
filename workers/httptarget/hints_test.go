package httptarget_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/httptarget"
	"github.com/penstock-mq/penstock/workers/workerstest"
)

// The job with that response is done at its first attempt, and the next job of its bucket starts
// when the limit permits.
func TestAnEmptyQuotaPausesTheBucket(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("RateLimit", `"default";r=0;t=1`)
	}))
	t.Cleanup(server.Close)
	p := workerstest.Policy("api", "1000/s")
	p.Concurrency = 1
	target := p
	target.Target = &policy.Target{HTTP: &policy.HTTPTarget{URL: server.URL}}
	handle, err := httptarget.New(httptarget.Options{Client: httptarget.Client()})(
		inforce.Entry{Policy: target})
	if err != nil {
		t.Fatal(err)
	}
	kit := workerstest.New(t, p)
	kit.Handle("api", handle)
	kit.Publish("api", "a", nil, 2)
	for _, end := range kit.Wait("api", 2) {
		if end.Type != queue.EventDone || end.Attempt != 1 || end.PauseMS != 1000 {
			t.Errorf("%+v", end)
		}
	}
	if jobs := kit.Jobs("api", "a"); jobs[1].Started.Sub(jobs[0].Started) < time.Second {
		t.Errorf("started at %v and %v", jobs[0].Started, jobs[1].Started)
	}
}
