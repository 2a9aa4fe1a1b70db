package policy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Lever is an operator's override of a whole policy. It lasts until it expires or is removed,
// whatever the policy's file or the API writes meanwhile.
type Lever struct {
	Override
	By      string     `json:"by,omitempty"` // the operator's name or address
	At      time.Time  `json:"at"`
	Because string     `json:"because,omitempty"`
	Expires *time.Time `json:"expires,omitempty"` // without it, never
}

// MaxBecause bounds the text of [Lever.Because], in bytes.
const MaxBecause = 256

// Levers are those of a policy, the oldest first. No two set the same field.
type Levers []Lever

// Override returns what all levers set.
func (l Levers) Override() (o Override) {
	for _, one := range l {
		o = Override{Outflow: cmp.Or(o.Outflow, one.Outflow), Peak: cmp.Or(o.Peak, one.Peak),
			Burst: cmp.Or(o.Burst, one.Burst), Concurrency: cmp.Or(o.Concurrency, one.Concurrency),
			Weight: cmp.Or(o.Weight, one.Weight), Capacity: cmp.Or(o.Capacity, one.Capacity),
			Paused: o.Paused || one.Paused}
	}
	return o
}

// Patch applies a JSON merge patch of an [Override]: the fields it names are set by a new lever,
// which has the other fields of next, and no longer by former ones; null only ends those.
func (l Levers) Patch(patch []byte, next Lever) (Levers, error) {
	var err error
	if next.Override, err = (Override{}).Patch(patch); err != nil {
		return nil, err
	}
	var named map[string]any
	if err := json.Unmarshal(patch, &named); err != nil {
		return nil, err
	}
	for name := range named {
		named[name] = nil
	}
	ended, err := json.Marshal(named)
	if err != nil {
		return nil, err
	}
	var after Levers
	for _, one := range l {
		if one.Override, err = one.Patch(ended); err != nil {
			return nil, err
		}
		after = append(after, one)
	}
	return slices.DeleteFunc(append(after, next), func(one Lever) bool { return one.IsZero() }), nil
}

// At returns the levers that have not expired.
func (l Levers) At(now time.Time) Levers {
	return slices.DeleteFunc(slices.Clone(l), func(one Lever) bool {
		return one.Expires != nil && !now.Before(*one.Expires)
	})
}

// Text tells what a lever changes in a policy of a source, as "file: 96/s, now 2/s by ann, 23 min
// left: their incident".
func (l Lever) Text(e Entry, now time.Time) string {
	var was, is []string
	written := flatten(e.Written)
	for _, f := range flatten(l.Override) {
		before := "none"
		for _, w := range written {
			if w.place == f.place {
				before = w.text
			}
		}
		switch {
		case f.place == "paused":
			was, is = append(was, "running"), append(is, "paused")
		case f.place == "outflow":
			was, is = append(was, before), append(is, f.text)
		default:
			was, is = append(was, f.place+" "+before), append(is, f.place+" "+f.text)
		}
	}
	text := fmt.Sprintf("%s: %s, now %s", e.Source, strings.Join(was, ", "), strings.Join(is, ", "))
	if l.By != "" {
		text += " by " + l.By
	}
	if l.Expires != nil {
		text += ", " + left(l.Expires.Sub(now)).String() + " left"
	}
	if l.Because != "" {
		text += ": " + l.Because
	}
	return text
}

// left rounds up, to minutes if there are several.
func left(d time.Duration) Duration {
	unit := time.Second
	if d > time.Minute {
		unit = time.Minute
	}
	return Duration((max(d, 0) + unit - 1) / unit * unit)
}
