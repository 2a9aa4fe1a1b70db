package core

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// begin lets jobs of a bucket run, without a rate's saying so.
func (b *valveBench) begin(n int) (jobs []*heldJob) {
	for range n {
		j := b.arrive(fmt.Sprintf("k%d", b.seq))
		b.v.detach(j)
		j.enter(stageRunning)
		jobs = append(jobs, j)
	}
	return jobs
}

// stored is what a record says to who reads it.
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

// Nothing crashed, so nothing may run twice, however many jobs run.
func TestAHandoverListsAllThatRunsAndHasFinished(t *testing.T) {
	for _, n := range []int{1, record.MostListed, record.MostListed + 1, 60_000} {
		b := newValveBench(t, leaky("api", "1000/s"))
		for i, j := range b.begin(2 * n) {
			switch {
			case i%2 == 0:
				j.enter(stageAcking)
			case i%3 == 0:
				j.holder = "another"
			}
		}
		before := b.v.handover(b.p, b.now, 0)
		h, size := stored(t, b.v.surrender(b.p, b.now), record.MostBytes)
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

// A drainer of a former version reads what it always did.
func TestFormerVersionsReadTheFirstJobsOfAHandover(t *testing.T) {
	b := newValveBench(t, leaky("api", "1000/s"))
	b.begin(10_000)
	h := b.v.surrender(b.p, b.now)
	h.Fit(record.MostBytes)
	var former struct {
		V       int          `json:"v"`
		Running []record.Run `json:"running"`
	}
	if err := json.Unmarshal(record.Encode(record.Owner{V: record.Version, Handover: h}),
		&former); err != nil {
		t.Fatal(err)
	}
	if former.V != 1 || len(former.Running) != record.MostListed ||
		former.Running[record.MostListed-1] != (record.Run{Seq: record.MostListed,
			Holder: "self"}) {
		t.Errorf("version %d, %d jobs, the last is %v", former.V, len(former.Running),
			former.Running[len(former.Running)-1])
	}
}

// What the server has confirmed is gone from the stream, and comes seldom again; what it has not
// confirmed comes for certain.
func TestConfirmedJobsDoNotCrowdOutUnconfirmedOnes(t *testing.T) {
	b := newValveBench(t, leaky("api", "1000/s"))
	b.v.reopen(b.p, 2)
	jobs := b.begin(10_000)
	for i, j := range jobs {
		if b.v.settle(j, Outcome{Kind: OutcomeDone}, b.now); i < 9_000 {
			b.v.confirmed(b.p, j.Seq, b.now)
		}
	}
	b.at(5 * second)
	h := b.v.surrender(b.p, b.now)
	h.Fit(record.MostBytes)
	for _, j := range jobs[9_000:] {
		if !slices.Contains(h.Done, j.Seq) {
			t.Fatalf("job %d is not confirmed, and not among the %d that all versions read", j.Seq,
				len(h.Done))
		}
	}
}

// Also the claim of an owner who opens its backlog anew lists them, for whoever comes if it crashes
// meanwhile.
func TestAClaimListsAllThatRuns(t *testing.T) {
	c := coreBench(t, leaky("api", "10/s"))
	running := make([]record.Run, 20_000)
	for i := range running {
		running[i] = record.Run{Seq: uint64(i + 1), Holder: "before"}
	}
	left := record.Handover{Running: slices.Clone(running)}
	left.Fit(c.most)
	c.Handle(Watched{TablePartitions, "api.0", Record{Exists: true, Revision: 8, Stored: originWall,
		Value: record.Encode(record.Owner{V: record.Version, Owner: "before", Released: true,
			Handover: left})}},
		origin)
	now := origin
	var claim record.Owner
	for ; claim.V == 0; now = now.Add(20 * ms) {
		c.advance(now)
		for _, w := range c.out.puts {
			if w.Why == whyTake {
				if err := record.Decode(w.value, &claim); err != nil {
					t.Fatal(err)
				}
			}
		}
		answerPuts(c, now)
	}
	if !slices.Equal(claim.Running, running) {
		t.Errorf("it lists %d of %d", len(claim.Running), len(running))
	}
}

func TestRecordsFitTheServersMessages(t *testing.T) {
	b := newValveBench(t, leaky("slow", "10/h"))
	for i := range 5000 {
		bucket := b.v.bucket(b.p, job.Key(fmt.Sprintf("tenant.%06d", i)), b.now)
		bucket.pace.Take(&bucket.clock, b.now, 1)
	}
	b.begin(2000)
	for _, payload := range []int64{16 << 10, 64 << 10, 256 << 10} {
		h, size := stored(t, b.v.handover(b.p, b.now, 0), record.Bytes(payload))
		if int64(size) > payload || len(h.Running) != 2000 || !h.Partial {
			t.Errorf("of at most %d bytes: %d, with %d of 2000 running jobs; partial: %t", payload,
				size, len(h.Running), h.Partial)
		}
	}
}

// What cannot be written is not tried again and again without a pause.
func TestAReleaseThatCannotBeWrittenIsTriedLessAndLessOften(t *testing.T) {
	c := coreBench(t, leaky("api", "10/s"))
	now := c.run(origin, 2*time.Second, nil)
	c.Handle(Stopped{}, now)
	releases := 0
	for end := now.Add(time.Minute); now < end; now = now.Add(20 * ms) {
		c.advance(now)
		for turn := 0; turn < 1000 && len(c.out.puts)+len(c.out.reads) > 0; turn++ {
			puts, reads := c.out.puts, c.out.reads
			c.out.puts, c.out.reads = nil, nil
			for _, w := range puts {
				if w.Why == whyRelease {
					releases++
					c.Handle(Written{w, PutUnknown, 0}, now)
					continue
				}
				benchRevision++
				c.Handle(Written{w, PutOK, benchRevision}, now)
			}
			for _, r := range reads {
				s := c.shares["api.0"]
				c.Handle(Found{r.Put,
					Record{Exists: true, Value: record.Encode(s.record), Revision: s.revision,
						Stored: originWall}}, now)
			}
		}
	}
	if releases < 5 || releases > 20 {
		t.Errorf("in a minute it was tried %d times", releases)
	}
}
