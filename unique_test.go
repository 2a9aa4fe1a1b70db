package penstock_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/internal/brokertest"
	"github.com/penstock-mq/penstock/internal/waittest"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/embedded"
	"github.com/penstock-mq/penstock/workers"
)

func TestOneJobOfANameWaits(t *testing.T) {
	server, _ := brokertest.Start(t, embedded.Options{Listen: "127.0.0.1:0"})
	slow := paced("slow", 1000, 100)
	slow.ResultRetention = policy.Duration(time.Hour)
	o := penstock.Options{URL: server.URL(), Policies: []policy.Policy{slow}}
	drains := open(t, o)
	ran := make(chan string, 100)
	drains.Handle("slow", func(_ context.Context, j workers.Job) error {
		ran <- string(j.Body)
		return nil
	})
	run(t, drains)
	o.AdmitOnly = true
	other := open(t, o)
	run(t, other)
	due := time.Now().Add(time.Hour)
	submit := func(p *penstock.Penstock, body string, replace bool) penstock.Ticket {
		ticket, err := p.Submit(t.Context(), penstock.Job{Policy: "slow", Key: "tenant",
			Unique: "reindex", Replace: replace, NotBefore: due, Body: []byte(body)})
		if err != nil {
			t.Error(err)
		}
		return ticket
	}
	var submissions sync.WaitGroup
	for i := range 20 {
		for _, p := range []*penstock.Penstock{drains, other} {
			submissions.Go(func() { submit(p, fmt.Sprint(i), false) })
		}
	}
	submissions.Wait()
	get := func(path string) string {
		w := httptest.NewRecorder()
		drains.Handler().ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/v1/"+path, nil))
		return w.Body.String()
	}
	is := func(id string, words ...string) {
		t.Helper()
		waittest.Until(t, id+" is "+strings.Join(words, " and "), func() bool {
			return !slices.ContainsFunc(words, func(word string) bool {
				return !strings.Contains(get("jobs/"+id), word)
			})
		})
	}
	var first string
	waittest.Until(t, "all but one are cancelled", func() bool {
		ticket := submit(other, "late", false)
		first = ticket.Job
		return ticket.Duplicate && strings.Contains(get("buckets/slow/tenant"), `"depth":1,`)
	})
	is(first, `"state":"delayed"`)
	due = time.Time{}
	ticket := submit(other, "last", true)
	if got := receive(t, ran); got != "last" || ticket.Job == first || ticket.Duplicate {
		t.Errorf("%q ran, ticket %+v", got, ticket)
	}
	is(first, `"state":"cancelled"`, "it was replaced by "+ticket.Job)
}
