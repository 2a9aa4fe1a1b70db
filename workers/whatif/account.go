package whatif

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/queue"
)

// Reason is why a request is refused.
type Reason string

// Reasons: a bucket's queue or all queues are full; a door policy's limit is exhausted; the job is
// expected after its deadline; its cost can never pass.
const (
	Capacity Reason = "capacity"
	Jobs     Reason = "max_jobs"
	Limit    Reason = "limit"
	Deadline Reason = "deadline"
	Cost     Reason = "cost"
)

// Report is a trace's result under a policy.
type Report struct {
	Policy string `json:"policy"`
	Figures
	// Refusals counts refused requests by reason.
	Refusals map[Reason]int64 `json:"refusals"`
	// Buckets is the number of keys; Keys are those with most requests.
	Buckets int           `json:"buckets"`
	Keys    []KeyFigures  `json:"keys,omitempty"`
	Width   time.Duration `json:"-"` // of a bin
	Bins    []Bin         `json:"-"` // from the first request to the last event
}

// KeyFigures are the results of one key.
type KeyFigures struct {
	Key queue.Key `json:"key"`
	Figures
}

// Figures are results of requests. For a policy, Depth and Worst are maximums over buckets.
type Figures struct {
	Requests int64 `json:"requests"`
	Accepted int64 `json:"accepted"`
	Refused  int64 `json:"refused"`
	// Started counts requests that started or went ahead; Stale counts dead letters by age.
	Started int64 `json:"started"`
	Stale   int64 `json:"stale"`
	// Wait is from request to start, of those that started.
	Wait Waits `json:"wait"`
	// Depth is the maximum of waiting and running jobs in a bucket.
	Depth int64 `json:"depth"`
	// Worst is the most units that a bucket started in any window, which ended at WorstAt.
	Worst   int64     `json:"worst"`
	WorstAt time.Time `json:"worst_at,omitzero"`
}

// RefusedShare is the refused part of the requests, 0 to 1.
func (f Figures) RefusedShare() float64 {
	return float64(f.Refused) / float64(max(f.Requests, 1))
}

// StaleShare is the stale part of the requests, 0 to 1.
func (f Figures) StaleShare() float64 { return float64(f.Stale) / float64(max(f.Requests, 1)) }

// Waits are quantiles, by the nearest-rank method.
type Waits struct {
	P50 Millis `json:"p50_ms"`
	P99 Millis `json:"p99_ms"`
	Max Millis `json:"max_ms"`
}

// Millis is encoded in JSON as milliseconds.
type Millis time.Duration

// MarshalJSON implements [json.Marshaler].
func (m Millis) MarshalJSON() ([]byte, error) {
	return json.Marshal(float64(m) / float64(time.Millisecond))
}

// Bin is an interval of the simulated time.
type Bin struct {
	Requests, Refused int64
	Started           int64         // units
	Depth             int64         // maximum number of jobs over all buckets
	Wait              time.Duration // the longest of started jobs
}

type account struct {
	options Options
	policy  string
	keys    map[queue.Key]*keyAccount
	reasons map[Reason]int64
	held    int64
	first   int64
	width   time.Duration
	bins    []Bin
}

type keyAccount struct {
	key queue.Key
	Figures
	held  int64
	waits []time.Duration
	last  []slot // starts in the window that ends now
	in    int64
}

type slot struct{ at, cost int64 }

func newAccount(policy string, o Options) *account {
	return &account{options: o, policy: policy, keys: map[queue.Key]*keyAccount{},
		reasons: map[Reason]int64{}, width: time.Millisecond}
}

func (a *account) requested(r *Request) *keyAccount {
	k := a.keys[r.Key]
	if k == nil {
		if len(a.keys) == 0 {
			a.first = r.At
		}
		k = &keyAccount{key: r.Key}
		a.keys[r.Key] = k
	}
	k.Requests++
	a.bin(r.At, func(b *Bin) { b.Requests++ })
	return k
}

func (a *account) refused(k *keyAccount, at int64, why Reason) {
	k.Refused++
	a.reasons[why]++
	a.bin(at, func(b *Bin) { b.Refused++ })
}

func (a *account) stored(k *keyAccount, at int64) {
	a.held++
	k.held++
	k.Depth = max(k.Depth, k.held)
	a.bin(at, func(*Bin) {})
}

func (a *account) left(k *keyAccount, at int64) {
	a.bin(at, func(*Bin) {})
	a.held--
	k.held--
}

func (a *account) started(k *keyAccount, at, came, cost int64) {
	k.Started++
	wait := time.Duration(at - came)
	k.waits = append(k.waits, wait)
	gone := 0
	for gone < len(k.last) && k.last[gone].at <= at-int64(a.options.Window) {
		k.in -= k.last[gone].cost
		gone++
	}
	k.last = append(k.last[gone:], slot{at, cost})
	if k.in += cost; k.in > k.Worst {
		k.Worst, k.WorstAt = k.in, time.Unix(0, at).UTC()
	}
	a.bin(at, func(b *Bin) {
		b.Started += cost
		b.Wait = max(b.Wait, wait)
	})
}

// bin updates an instant's bin. Beyond their maximum, pairs of bins are merged.
func (a *account) bin(at int64, change func(*Bin)) {
	if a.options.Bins == 0 {
		return
	}
	i := (at - a.first) / int64(a.width)
	for ; i >= int64(2*a.options.Bins); i /= 2 {
		a.halve()
	}
	for int64(len(a.bins)) <= i {
		a.bins = append(a.bins, Bin{Depth: a.held})
	}
	change(&a.bins[i])
	a.bins[i].Depth = max(a.bins[i].Depth, a.held)
}

func (a *account) halve() {
	a.width *= 2
	for i := 0; i < len(a.bins); i += 2 {
		b := a.bins[i]
		if i+1 < len(a.bins) {
			c := a.bins[i+1]
			b = Bin{b.Requests + c.Requests, b.Refused + c.Refused, b.Started + c.Started,
				max(b.Depth, c.Depth), max(b.Wait, c.Wait)}
		}
		a.bins[i/2] = b
	}
	a.bins = a.bins[:(len(a.bins)+1)/2]
}

func (a *account) report() *Report {
	r := &Report{Policy: a.policy, Refusals: a.reasons, Buckets: len(a.keys), Width: a.width,
		Bins: a.bins}
	var waits []time.Duration
	var keys []*keyAccount
	for _, k := range a.keys {
		waits = append(waits, k.waits...)
		keys = append(keys, k)
		r.add(k.Figures)
	}
	r.Wait = waitsOf(waits)
	slices.SortFunc(keys, func(a, b *keyAccount) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.key, b.key))
	})
	for _, k := range keys[:min(len(keys), a.options.Keys)] {
		k.Wait = waitsOf(k.waits)
		r.Keys = append(r.Keys, KeyFigures{k.key, k.Figures})
	}
	return r
}

func (f *Figures) add(k Figures) {
	f.Requests += k.Requests
	f.Accepted += k.Accepted
	f.Refused += k.Refused
	f.Started += k.Started
	f.Stale += k.Stale
	f.Depth = max(f.Depth, k.Depth)
	if k.Worst > f.Worst || k.Worst == f.Worst && k.WorstAt.Before(f.WorstAt) {
		f.Worst, f.WorstAt = k.Worst, k.WorstAt
	}
}

func waitsOf(waits []time.Duration) Waits {
	if len(waits) == 0 {
		return Waits{}
	}
	slices.Sort(waits)
	quantile := func(q float64) Millis {
		return Millis(waits[max(0, int(math.Ceil(q*float64(len(waits))))-1)])
	}
	return Waits{quantile(0.5), quantile(0.99), quantile(1)}
}
