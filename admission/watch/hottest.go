package watch

import (
	"cmp"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
)

// MostKeys is how many keys of a policy are known that ask most.
const MostKeys = 64

// KeyStat is what a key of a policy that decides at the door was answered. It is counted from when
// the key was among those that ask most, so there may be More before that, at most so many.
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

// asked counts a check of a key.
func (f *figures) asked(now time.Time, k job.Key, allowed bool) {
	number := now.Unix() / partSeconds
	h := &f.hot[number%parts]
	if h.number != number || h.at == nil {
		*h = hottest{number: number, at: map[job.Key]int{}}
	}
	h.add(k, allowed)
}

// hottest returns the keys that asked most in the window, at most so many.
func (f *figures) hottest(now time.Time, most int) []KeyStat {
	all := map[string]KeyStat{}
	for i := range f.hot {
		if h := &f.hot[i]; h.number > now.Unix()/partSeconds-parts {
			for _, k := range h.keys {
				sum := all[k.Key]
				all[k.Key] = KeyStat{k.Key, sum.Allowed + k.Allowed, sum.Refused + k.Refused,
					sum.More + k.More}
			}
		}
	}
	keys := make([]KeyStat, 0, len(all))
	for form, k := range all {
		k.Key = job.Key(form).Raw()
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b KeyStat) int {
		return cmp.Or(cmp.Compare(b.counted(), a.counted()), cmp.Compare(a.Key, b.Key))
	})
	return keys[:min(len(keys), most)]
}
