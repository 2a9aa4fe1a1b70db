package valve

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func unique(value string) func(*job.Arrived) {
	return func(a *job.Arrived) { a.Header = map[string][]string{job.HeaderUnique: {value}} }
}

func (b *valveBench) cancelled() (all string) {
	for _, c := range b.out.Cancelled {
		all += fmt.Sprintf("%d: %s. ", c.Seq, c.Reason)
	}
	return all
}

func TestAtMostOneJobOfANameWaits(t *testing.T) {
	for name, c := range map[string]struct {
		headers   []string
		cancelled string
		starts    string
	}{
		"the first is kept": {[]string{"x", "x", "y", "x"},
			"3: it waits as api:2. 5: it waits as api:2. ", "[1 2 4 6]"},
		"the last replaces": {[]string{"x;replace", "x; replace", "y", "x;replace"},
			"2: it was replaced by api:3. 3: it was replaced by api:5. ", "[1 4 5 6]"},
		"both": {[]string{"x", "x;replace", "x", ""},
			"2: it was replaced by api:3. 4: it waits as api:3. ", "[1 3 5 6]"},
	} {
		for _, memory := range []int64{0, 1} {
			t.Run(fmt.Sprint(name, memory), func(t *testing.T) {
				b := newValveBench(t, leaky("api", "1/m"))
				b.v.texts.memory.most = memory
				b.arrive("a")
				for _, value := range c.headers {
					b.arrive("a", unique(value))
				}
				b.arrive("b", unique("x"))
				var seqs []uint64
				for range 10 {
					b.text()
					b.until(b.now.Since(origin)+time.Hour, func(r Run) {
						seqs = append(seqs, r.Seq)
						b.done(r)
					})
				}
				slices.Sort(seqs)
				if got := fmt.Sprint(seqs); b.cancelled() != c.cancelled || got != c.starts {
					t.Errorf("cancelled %q, started %s; want %q, %s", b.cancelled(), got,
						c.cancelled, c.starts)
				}
			})
		}
	}
}

func TestAJobThatRunsIsNotTheOneThatWaits(t *testing.T) {
	b := newValveBench(t, leaky("api", "1000/s"))
	b.arrive("a", unique("x"))
	r := b.start()[0]
	if b.p.waitsAs("a", "x") != 0 {
		t.Error("the job that runs is said to wait")
	}
	second := b.arrive("a", unique("x"))
	if got := b.p.waitsAs("a", "x"); got != second.Seq || b.cancelled() != "" {
		t.Errorf("%d waits, cancelled %q", got, b.cancelled())
	}
	b.end(r, record.Outcome{Kind: record.OutcomeUncounted})
	for i := range 5 * leastSweep {
		b.arrive("a", unique(fmt.Sprint("n", i)))
		b.p.cancel(b.seq)
	}
	if n := len(b.p.unique.jobs); n > 2*leastSweep {
		t.Errorf("%d names are kept of jobs that are gone", n)
	}
}
