package queue

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/queue/internal/jsapi"
	"github.com/penstock-mq/penstock/queue/job"
)

const (
	// RecentTime is how far counts of a [Recent] go back.
	RecentTime = time.Minute

	recentPart  = 2 // seconds
	recentParts = int(RecentTime/time.Second)/recentPart + 1
	// per answer, about 200 KB
	mostRecent = 1000
)

// Recent has a policy's counts of the last minute.
type Recent struct {
	N [Counts]int64 `json:"n"`
	// Starts are per two seconds, oldest first; the last part has begun.
	Starts [recentParts]int64 `json:"starts"`
}

// Add adds another process's counts.
func (r *Recent) Add(other Recent) {
	for what, n := range other.N {
		r.N[what] += n
	}
	for part, n := range other.Starts {
		r.Starts[part] += n
	}
}

// Recents are the counts of one process, or of all drainers and the admitter in one.
type Recents struct {
	V    int    `json:"v"`
	From string `json:"from"`
	// ForMS is how long the process has counted, at most a minute.
	ForMS    int64             `json:"for_ms"`
	Policies map[string]Recent `json:"policies"`
}

type recent [recentParts]struct {
	number int64
	n      [Counts]uint32
}

func (r *recent) add(now time.Time, what Count) {
	number := now.Unix() / recentPart
	p := &r[number%int64(recentParts)]
	if p.number != number {
		p.number, p.n = number, [Counts]uint32{}
	}
	p.n[what]++
}

func (r *recent) sum(now time.Time) (sum Recent, some bool) {
	first := now.Unix()/recentPart - int64(recentParts) + 1
	for _, p := range r {
		if p.number < first || p.number >= first+int64(recentParts) {
			continue
		}
		for what, n := range p.n {
			sum.N[what] += int64(n)
			some = some || n > 0
		}
		sum.Starts[p.number-first] = int64(p.n[CountStarted])
	}
	return sum, some
}

// Recents returns this broker's counts. They run always, with or without listeners.
func (b *Broker) Recents() Recents {
	e := b.told()
	e.mu.Lock()
	gates := maps.Clone(e.gates)
	e.mu.Unlock()
	now := b.minutes.now()
	all := Recents{V: job.FormatVersion, From: e.process, Policies: map[string]Recent{},
		ForMS: min(now.Sub(b.minutes.born), RecentTime).Milliseconds()}
	for policy, g := range gates {
		g.telling.Lock()
		sum, some := g.recent.sum(now)
		g.telling.Unlock()
		if some {
			all.Policies[policy] = sum
		}
	}
	return all
}

func (n Names) recent() string { return n.lower + ".recent" }

func (b *Broker) tellRecents(m *nats.Msg) {
	all := b.Recents()
	busiest := slices.SortedFunc(maps.Keys(all.Policies), func(x, y string) int {
		return cmp.Compare(all.Policies[y].N[CountAccepted], all.Policies[x].N[CountAccepted])
	})
	for _, policy := range busiest[min(mostRecent, len(busiest)):] {
		delete(all.Policies, policy)
	}
	body, err := json.Marshal(all)
	if err == nil {
		err = m.Respond(body)
	}
	if err != nil {
		b.log.Debug("counts of the last minute not told", "error", err)
	}
}

// ListenRecents calls heard with the counts of each other broker of the installation, after each
// ask, until stop.
func (b *Broker) ListenRecents(heard func(Recents)) (ask func() error, stop func(), err error) {
	process := b.told().process
	inbox := b.nc.NewInbox()
	sub, err := b.nc.Subscribe(inbox, func(m *nats.Msg) {
		var all Recents
		if m.Header.Get("Status") != "" {
			return // no other broker
		}
		if err := json.Unmarshal(m.Data, &all); err != nil || all.V != job.FormatVersion {
			b.log.Debug("counts of another format", "error", err)
		} else if all.From != process {
			heard(all)
		}
	})
	if err != nil {
		return nil, nil, jsapi.Translate(err)
	}
	return func() error { return b.nc.PublishRequest(b.names.recent(), inbox, nil) },
		func() { _ = sub.Unsubscribe() }, nil
}
