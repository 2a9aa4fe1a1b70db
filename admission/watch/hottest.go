package watch

import (
	"cmp"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
)

// MostKeys is how many keys of a policy are known that ask most.
const MostKeys = 64

// KeyStat is what a key was answered: to checks, or to jobs, of which only refusals count. It is
// counted from when the key was among those that ask most, so there may be More before that, at
// most so many.
type KeyStat struct {
	Key     string `json:"key"`
	Allowed int64  `json:"allowed"`
	Refused int64  `json:"refused"`
	More    int64  `json:"more,omitempty"`
}

func (k KeyStat) counted() int64 { return k.Allowed + k.Refused }

// hottest finds the keys that ask most in one part of the window, in bounded memory: space-saving,
// after Metwally, Agrawal and El Abbadi (2005). A key that is not known takes the place of the one
// that asked least, and may have asked as often as that before. So no key is missing that has more
// than a 64th of all checks.
type hottest struct {
	number int64 // of the part
	keys   []KeyStat
	at     map[job.Key]int
}

func (h *hottest) add(k job.Key, allowed bool) {
	i, known := h.at[k]
	switch {
	case known:
	case len(h.keys) < MostKeys:
		i = len(h.keys)
		h.keys = append(h.keys, KeyStat{Key: string(k)})
	default:
		for j, other := range h.keys {
			if least := h.keys[i]; other.counted()+other.More < least.counted()+least.More {
				i = j
			}
		}
		delete(h.at, job.Key(h.keys[i].Key))
		h.keys[i] = KeyStat{Key: string(k), More: h.keys[i].counted() + h.keys[i].More}
	}
	h.at[k] = i
	if allowed {
		h.keys[i].Allowed++
	} else {
		h.keys[i].Refused++
	}
}

// heat is a hottest for each part of the window.
type heat [parts]hottest

// asked counts what a key was answered.
func (all *heat) asked(now time.Time, k job.Key, allowed bool) {
	number := now.Unix() / partSeconds
	h := &all[number%parts]
	if h.number != number || h.at == nil {
		*h = hottest{number: number, at: map[job.Key]int{}}
	}
	h.add(k, allowed)
}

// hottest returns the keys that asked most in the window, at most so many.
func (all *heat) hottest(now time.Time, most int) []KeyStat {
	sums := map[string]KeyStat{}
	for i := range all {
		if h := &all[i]; h.number > now.Unix()/partSeconds-parts {
			for _, k := range h.keys {
				sum := sums[k.Key]
				sums[k.Key] = KeyStat{k.Key, sum.Allowed + k.Allowed, sum.Refused + k.Refused,
					sum.More + k.More}
			}
		}
	}
	keys := make([]KeyStat, 0, len(sums))
	for form, k := range sums {
		k.Key = job.Key(form).Raw()
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b KeyStat) int {
		return cmp.Or(cmp.Compare(b.counted(), a.counted()), cmp.Compare(a.Key, b.Key))
	})
	return keys[:min(len(keys), most)]
}

// Refusals are of which keys most jobs were refused in the last minute, by policy.
type Refusals struct {
	Window time.Duration        // for how long they were counted, a minute at most
	Keys   map[string][]KeyStat // at most [MostKeys] of each policy
}

// Refusals returns what this process refused of the policies that may be seen, and has refusals
// counted for a while: the first answer has none.
func (w *Watch) Refusals(may func(policy string) bool) (Refusals, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, heard, err := w.asked()
	all := Refusals{heard, map[string][]KeyStat{}}
	for name, f := range w.figures {
		if may(name) {
			all.Keys[name] = f.full.hottest(now, MostKeys)
		}
	}
	return all, err
}
