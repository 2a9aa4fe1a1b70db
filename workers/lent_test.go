package workers

import (
	"context"
	"testing"

	"github.com/penstock-mq/penstock/internal/queue/job"
)

// A process that begins to own a policy whose jobs it runs for another owner has only the workers
// that those leave.
func TestWorkersStayLentWhenTheirProcessBecomesAnOwner(t *testing.T) {
	p := leaky("api", "1000/s")
	p.Workers, p.Partitions = 1, 1
	b := newBench(t, p)
	leave := b.valve(Options{})
	began, release := make(chan string), make(chan struct{})
	d, _ := b.drainer(Options{Policies: []string{"another"}},
		map[string]Handler{"api": func(ctx context.Context, j Job) error {
			began <- string(j.Body)
			select {
			case <-release:
			case <-ctx.Done():
			}
			return nil
		}})
	b.publish("api", "a", 1, 1)
	if body := <-began; body != "1" {
		t.Fatalf("job %s began", body)
	}
	former := b.owner("api.0")
	d.SetPolicies([]string{"api"})
	left := make(chan struct{})
	go func() { leave(); close(left) }()
	b.until("the lender owns the partition", func() bool {
		now := b.owner("api.0")
		return !now.Released && now.Owner != former.Owner
	})
	b.publish("api", "b", 2, 1)
	b.until("its valve says what becomes of another job", func() bool {
		select {
		case body := <-began:
			t.Fatalf("job %s began, while the only worker was busy", body)
		default:
		}
		return b.bucket("api", "b").By == job.BlockedByWorkersBusy
	})
	close(release)
	if body := <-began; body != "2" {
		t.Errorf("job %s began", body)
	}
	<-left
	b.empty("api")
}
