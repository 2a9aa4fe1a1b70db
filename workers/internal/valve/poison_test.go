package valve

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/gates"
)

// A job that makes its target fail uses up its attempts and delays no other, even alone in its
// bucket.
func TestAPoisonJobOpensNoBreaker(t *testing.T) {
	for name, others := range map[string]int{"among others": 500, "alone": 0} {
		t.Run(name, func(t *testing.T) {
			p := leaky("api", "10/s")
			p.Retry.MaxAttempts = 10
			b := newValveBench(t, p)
			poison := b.arrive("a")
			for range others {
				b.arrive("a")
			}
			ran := 0
			b.until(time.Hour, func(r Run) {
				if r.Ref == poison.ref() {
					b.down(r)
				} else {
					b.done(r)
					ran++
				}
				if b.v.Breakers().Open() > 0 {
					t.Fatal("a breaker is open")
				}
			})
			if b.reasons() != "[attempts]" || ran != others {
				t.Errorf("letters %s, %d others ran", b.reasons(), ran)
			}
		})
	}
}

// With enough poison jobs at the head to open the breaker, the first probe is a job that did not
// fail.
func TestPoisonJobsAtTheHeadDelayTheirBucketByOneProbe(t *testing.T) {
	b := newValveBench(t, leaky("api", "100/s"))
	for range 500 {
		b.arrive("a")
	}
	healthy := 0
	b.until(12*second, func(r Run) {
		if r.Seq <= gates.MostSuspectJobs {
			b.down(r)
		} else {
			b.done(r)
			healthy++
		}
	})
	if healthy != 495 {
		t.Errorf("%d of 495 healthy jobs ran", healthy)
	}
	if n := b.attempts(); n < 3*gates.MostSuspectJobs {
		t.Errorf("%d attempts were counted of %d poison jobs", n, gates.MostSuspectJobs)
	}
}

// Jobs that always fail use up their attempts behind an open breaker while other buckets succeed.
// Without a success the target is down, and no attempt counts.
func TestJobsThatAlwaysFailDieWhileOthersGetAnswers(t *testing.T) {
	for name, poisoned := range map[string]int{"one bucket": 1, "several": 4} {
		for _, answered := range []bool{true, false} {
			t.Run(fmt.Sprint(name, answered), func(t *testing.T) {
				p := leaky("api", "10/s")
				p.Retry.MaxAttempts = 4
				b := newValveBench(t, p)
				for k := range poisoned {
					for range 2 * gates.MostSuspectJobs {
						b.arrive(fmt.Sprintf("bad-%d", k))
					}
				}
				held := map[string]bool{}
				for at := time.Duration(0); at < 3*time.Hour; at += 10 * second {
					if answered {
						b.arrive("good")
					}
					b.until(at, func(r Run) {
						if r.Key == "good" {
							b.done(r)
							return
						}
						b.down(r)
					})
					for _, bucket := range b.p.list.All() {
						if bucket.Target.Down() && bucket.queue.Key != "good" {
							by, _ := b.view().held(bucket)
							held[by] = true
						}
					}
				}
				dead, want := len(b.out.Burials), 0
				if answered {
					want = poisoned * 2 * gates.MostSuspectJobs
				}
				if dead != want {
					t.Errorf("%d jobs have died, want %d; %s", dead, want, b.reasons())
				}
				if held[job.BlockedByBackoff] != answered {
					t.Errorf("they are held by %v", held)
				}
			})
		}
	}
}
