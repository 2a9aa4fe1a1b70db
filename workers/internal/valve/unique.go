package valve

import (
	"crypto/sha256"
	"fmt"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
)

// uniques finds waiting jobs by unique name. Entries are checked before use, and stale ones dropped
// once the map has doubled.
type uniques struct {
	jobs  map[[16]byte]uniqueJob
	sweep int // size that triggers dropping of stale entries
}

type uniqueJob struct {
	seq    uint64
	stored int64 // Unix ns
}

const leastSweep = 1000

func uniqueName(key queue.Key, name string) [16]byte {
	sum := sha256.Sum256([]byte(string(key) + "\x00" + name)) // no key holds a zero byte
	return [16]byte(sum[:16])
}

func (p *Part) find(u uniqueJob) *heldJob {
	j := p.seek(u.seq)
	if j == nil || j.Stored.UnixNano() != u.stored ||
		j.stage != stageWaiting && j.stage != stageDelayed {
		return nil
	}
	return j
}

// waitsAs returns the job that waits under a unique name, or 0.
func (p *Part) waitsAs(key queue.Key, name string) uint64 {
	if name == "" {
		return 0
	}
	if j := p.find(p.unique.jobs[uniqueName(key, name)]); j != nil {
		return j.Seq
	}
	return 0
}

// repeats drops a new job or the waiting job with its unique name, and reports whether it was the
// new one. Jobs arrive in the stream's order, so the result does not depend on the submitter.
func (p *Part) repeats(j *heldJob) bool {
	name, replaces := job.Unique(j.Header)
	if name == "" {
		return false
	}
	hash, id := uniqueName(j.Key, name), uniqueJob{j.Seq, j.Stored.UnixNano()}
	if first := p.find(p.unique.jobs[hash]); first != nil && first.Seq != j.Seq {
		if !replaces {
			p.v.stock.repeated(j, "waits as", first.Seq)
			return true
		}
		first = p.reach(first.Seq)
		p.v.stock.repeated(first, "was replaced by", j.Seq)
	}
	if p.unique.jobs == nil {
		p.unique = uniques{map[[16]byte]uniqueJob{}, leastSweep}
	}
	p.unique.jobs[hash] = id
	if len(p.unique.jobs) > p.unique.sweep {
		for hash, u := range p.unique.jobs {
			if p.find(u) == nil {
				delete(p.unique.jobs, hash)
			}
		}
		p.unique.sweep = max(leastSweep, 2*len(p.unique.jobs))
	}
	return false
}

func (s *stock) repeated(j *heldJob, how string, other uint64) {
	s.dismiss(j, queue.EndCancelled)
	s.out.Cancelled[len(s.out.Cancelled)-1].Reason =
		fmt.Sprintf("it %s %s", how, job.ID(j.Bucket.Part.Policy, other))
}
