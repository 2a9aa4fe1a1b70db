package watch

import (
	"cmp"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/queue/job"
)

// MostKeys bounds the keys that are counted for a policy.
const MostKeys = 64

// counted is the answers to a key, since up to More earlier ones.
func counted(k api.KeyStat) int64 { return k.Allowed + k.Refused }

// hottest finds the most frequent keys by space-saving (Metwally, Agrawal, El Abbadi 2005): a new
// key replaces the least frequent one and inherits its count as More. Each key with more than a
// 64th of all checks is found.
type hottest struct {
	number int64
	keys   []api.KeyStat
	at     map[job.Key]int
}

func (h *hottest) add(k job.Key, allowed bool) {
	i, known := h.at[k]
	switch {
	case known:
	case len(h.keys) < MostKeys:
		i = len(h.keys)
		h.keys = append(h.keys, api.KeyStat{Key: string(k)})
	default:
		for j, other := range h.keys {
			if least := h.keys[i]; counted(other)+other.More < counted(least)+least.More {
				i = j
			}
		}
		delete(h.at, job.Key(h.keys[i].Key))
		h.keys[i] = api.KeyStat{Key: string(k), More: counted(h.keys[i]) + h.keys[i].More}
	}
	h.at[k] = i
	if allowed {
		h.keys[i].Allowed++
	} else {
		h.keys[i].Refused++
	}
}

type heat [parts]hottest

func (all *heat) asked(now time.Time, k job.Key, allowed bool) {
	number := now.Unix() / partSeconds
	h := &all[number%parts]
	if h.number != number || h.at == nil {
		*h = hottest{number: number, at: map[job.Key]int{}}
	}
	h.add(k, allowed)
}

func (all *heat) hottest(now time.Time, most int) []api.KeyStat {
	sums := map[string]api.KeyStat{}
	for i := range all {
		if h := &all[i]; h.number > now.Unix()/partSeconds-parts {
			for _, k := range h.keys {
				sum := sums[k.Key]
				sums[k.Key] = api.KeyStat{Key: k.Key, Allowed: sum.Allowed + k.Allowed,
					Refused: sum.Refused + k.Refused, More: sum.More + k.More}
			}
		}
	}
	keys := make([]api.KeyStat, 0, len(sums))
	for form, k := range sums {
		k.Key = job.Key(form).Raw()
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b api.KeyStat) int {
		return cmp.Or(cmp.Compare(counted(b), counted(a)), cmp.Compare(a.Key, b.Key))
	})
	return keys[:min(len(keys), most)]
}

// Refusals are the keys with most answers of a process, by policy.
type Refusals struct {
	Window time.Duration            // at most a minute
	Keys   map[string][]api.KeyStat // at most [MostKeys] per policy
}

// Refusals are this process's. The first call starts the counting.
func (w *Watch) Refusals(may func(policy string) bool) (Refusals, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, heard, err := w.asked()
	all := Refusals{heard, map[string][]api.KeyStat{}}
	for name, f := range w.figures {
		if may(name) {
			all.Keys[name] = f.full.hottest(now, MostKeys)
		}
	}
	return all, err
}
