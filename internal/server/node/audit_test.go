package node_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers"
)

func TestABucketShowsTheAudit(t *testing.T) {
	p := open(t, penstock.Options{Audit: true, Policies: []policy.Policy{paced("api", 100, 1000)}})
	p.Handle("api", func(context.Context, workers.Job) error { return nil })
	run(t, p)
	shown := struct {
		Audit struct {
			Worst []struct {
				Limit, Window string
				Units         int64
				Most          float64
			}
			Broken     int
			Incomplete bool
		}
	}{}
	eventually(t, "a bucket's windows are shown", func() bool {
		if _, err := p.Submit(t.Context(), penstock.Job{Policy: "api", Key: "k"}); err != nil {
			t.Fatal(err)
		}
		recorder := httptest.NewRecorder()
		p.Handler().ServeHTTP(recorder,
			httptest.NewRequest("GET", "http://localhost/v1/buckets/api/k", nil))
		if err := json.Unmarshal(recorder.Body.Bytes(), &shown); err != nil {
			t.Fatal(err)
		}
		return len(shown.Audit.Worst) == 2 && shown.Audit.Worst[0].Units > 3
	})
	a := shown.Audit
	if w := a.Worst[1]; w.Limit != "outflow" || w.Window != "1s" || w.Most < 100 || w.Most > 103 ||
		a.Broken != 0 || a.Incomplete {
		t.Errorf("shown %+v", a)
	}
	if f := p.Audit(); len(f) != 1 || f[0].Worst <= 0 || f[0].Worst > 1 {
		t.Errorf("figures %+v", f)
	}
}
