package valve

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/inheritance"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func (b *valveBench) begin(n int) (jobs []*heldJob) {
	for range n {
		j := b.arrive(fmt.Sprintf("k%d", b.seq))
		b.v.stock.detach(j)
		j.enter(stageRunning)
		jobs = append(jobs, j)
	}
	return jobs
}

func stored(t *testing.T, h record.Handover, most int) (read record.Handover, size int) {
	t.Helper()
	h.Fit(most)
	data := record.Encode(record.Owner{V: record.Version, Handover: h})
	var r record.Owner
	if err := record.Decode(data, &r); err != nil {
		t.Fatal(err)
	}
	return r.Handover, len(data)
}

func TestAHandoverListsAllThatRunsAndHasFinished(t *testing.T) {
	for _, n := range []int{1, 60_000} {
		b := newValveBench(t, leaky("api", "1000/s"))
		for i, j := range b.begin(2 * n) {
			switch {
			case i%2 == 0:
				j.enter(stageAcking)
			case i%3 == 0:
				j.holder = "another"
			}
		}
		before := b.p.Handover(b.now)
		h, size := stored(t, b.p.Surrender(b.now), record.MostBytes)
		if !slices.Equal(h.Running, before.Running) || len(h.Running) != n {
			t.Errorf("%d run; %d are handed over, of %d", n, len(h.Running), len(before.Running))
		}
		if len(h.Done) != n || !slices.Equal(h.Done, before.Done) {
			t.Errorf("%d are done and not confirmed; %d are handed over, of %d", n, len(h.Done),
				len(before.Done))
		}
		if size > record.MostBytes {
			t.Errorf("with %d jobs the record has %d bytes", 2*n, size)
		}
	}
}

// Unconfirmed jobs will be redelivered, confirmed ones rarely.
func TestConfirmedJobsDoNotCrowdOutUnconfirmedOnes(t *testing.T) {
	b := newValveBench(t, leaky("api", "1000/s"))
	b.p.Reopen(2)
	jobs := b.begin(10_000)
	for i, j := range jobs {
		if b.v.settle(j, record.Outcome{Kind: record.OutcomeDone}, b.now); i < 9_000 {
			b.p.Confirmed(j.Seq, b.now)
		}
	}
	b.at(5 * second)
	h := b.p.Surrender(b.now)
	h.Fit(8 << 10)
	for _, j := range jobs[9_000:] {
		if !slices.Contains(h.Done, j.Seq) {
			t.Fatalf("job %d is not confirmed, and not among the %d that are told", j.Seq,
				len(h.Done))
		}
	}
}

func TestRecordsFitTheServersMessages(t *testing.T) {
	b := newValveBench(t, leaky("slow", "10/h"))
	for i := range 5000 {
		bucket := b.p.bucket(queue.Key(fmt.Sprintf("tenant.%06d", i)), b.now)
		bucket.pace.Take(&bucket.clock, b.now, 1)
	}
	b.begin(2000)
	for _, payload := range []int64{16 << 10, 64 << 10, 256 << 10} {
		h, size := stored(t, b.p.Handover(b.now), record.Bytes(payload))
		if int64(size) > payload || len(h.Running) != 2000 || !h.Partial {
			t.Errorf("of at most %d bytes: %d, with %d of 2000 running jobs; partial: %t", payload,
				size, len(h.Running), h.Partial)
		}
	}
}

// An unlisted bucket counts as much as the fullest of them, not as a whole limit.
func TestAPartialHandoverBoundsUnlistedBuckets(t *testing.T) {
	for name, from := range map[string]policy.CountFrom{"start": policy.CountFromStart,
		"answer": policy.CountFromAnswer, "open": policy.CountFromAnswer} {
		p := answering(policy.PlaceholderKey)
		p.Workers, p.Limits[0].CountFrom, p.Limits[0].Limit = 2000, from, 50
		p.Limits[0].Window = policy.Duration(time.Minute)
		b := newValveBench(t, p)
		begin := func(key string, n int) (runs []Run) {
			for range n {
				b.arrive(key)
			}
			for b.noted(); len(runs) < n; b.noted() {
				runs = append(runs, b.start()...)
				if len(runs) < n {
					b.now = b.now.Add(askAgain + ms)
				}
			}
			return runs
		}
		runs := begin("z", 49)
		for i := range 300 {
			runs = append(runs, begin(fmt.Sprintf("k%03d", i), 2)...)
		}
		begin("waits", 1)
		for _, r := range runs {
			if name != "open" {
				b.done(r)
			}
		}
		h, _ := stored(t, b.p.Surrender(b.now), 100*record.ClockBytes)
		next := unownedValve(t, p).inheritFrom(inheritance.State{Owner: "self", Handover: h})
		left := func(key queue.Key) (left, open int64) {
			used := next.p.bucket(key, next.now).Used
			next.v.quota.Left(used, next.v.wall.reading(next.now), func(_ string, l, _, o int64) {
				left, open = l, o
			})
			return left, open
		}
		full, _ := left("z")
		some, _ := left("k299")
		none, _ := left("new")
		waiting, _ := left("waits")
		if !h.Partial || h.Open != (name == "open") || full != 1 || some != 48 || none != 48 ||
			name == "answer" && waiting != 49 {
			t.Errorf("%s: partial %v, open %v; of 50, %d, %d, %d, %d are left", name, h.Partial,
				h.Open, full, some, none, waiting)
		}
		// until the runs of the former owner must have reported
		next.at(11900 * ms)
		if _, open := left("k299"); (open == 2) != (name == "open") {
			t.Errorf("%s: %d are open", name, open)
		}
		next.at(12 * second)
		if again, open := left("k299"); open != 0 || again != 48 {
			t.Errorf("%s: %d are open, %d left at last", name, open, again)
		}
	}
}

// An omitted one is charged again if its report is repeated; an omitted job runs twice.
func TestEndedCallsAreDroppedFirst(t *testing.T) {
	b := newValveBench(t, leaky("slow", "10/h"))
	for i := range 500 {
		bucket := b.p.bucket(queue.Key(fmt.Sprintf("tenant.%06d", i)), b.now)
		bucket.pace.Take(&bucket.clock, b.now, 1)
	}
	b.begin(200)
	for i := range 1000 {
		b.p.calls.Report(&claimer{ID: fmt.Sprint(i)}, b.now)
	}
	all, size := stored(t, b.p.Handover(b.now), record.MostBytes)
	most := 500*(record.ClockBytes+len("tenant.000000")) + 2000
	h, fits := stored(t, b.p.Handover(b.now), most)
	if len(all.Ended) != 1000 || fits > size-3000 || h.Partial || len(h.Ended) == 0 ||
		len(h.Clocks) != 500 || len(h.Running) != 200 {
		t.Errorf("%d of %d bytes: partial %v, %d clocks, %d jobs, %d ended calls of %d", fits, size,
			h.Partial, len(h.Clocks), len(h.Running), len(h.Ended), len(all.Ended))
	}
}
