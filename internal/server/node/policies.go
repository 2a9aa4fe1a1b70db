package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/admission/schedules"
	"github.com/penstock-mq/penstock/internal/base/notice"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/kv"
	"github.com/penstock-mq/penstock/internal/queue/store"
	"github.com/penstock-mq/penstock/internal/server/lifecycle"
	"github.com/penstock-mq/penstock/queue"
)

const (
	inventoryAgain = 10 * time.Second
	// delay before a deleted policy's partition records are swept
	leftFor = 10 * time.Minute
	never   = 1 << 62 * time.Nanosecond

	expireAgain = time.Second // after a failure

	// interval of looks at other processes' texts of a set while this one's has lost
	retakeAgain = 5 * time.Second
	// retakeAfter is how long no other process may have another text before a replaced one returns.
	retakeAfter = time.Minute
)

const (
	hasNewer = "the set has a newer text of other processes, which applies: this one returns " +
		"once every process with the set has had it for a minute"
	isOfAPI = "policy of the file belongs to the API: the file's text has no effect until " +
		"penstock policies take"
	startsNone = "no job of %[1]s starts: %[2]s"
)

var (
	superseded = notice.Kind{Level: slog.LevelWarn, Of: "set", Begin: hasNewer,
		End: "this process's text of the set applies", Note: "set %[1]s: " + hasNewer}
	ofAPI = notice.Kind{Level: slog.LevelWarn, Of: "policy", Begin: isOfAPI,
		End:  "policy no longer belongs to both the file and the API",
		Note: "%[1]s: " + isOfAPI + " %[1]s"}
	unreadable = notice.Kind{Level: slog.LevelError, Of: "policy",
		Begin: "policy record unreadable, so its jobs do not start: write the policy " +
			"again, or run the version that wrote it",
		End: "policy record readable again", Note: startsNone}
	orphaned = notice.Kind{Level: slog.LevelError, Of: "policy",
		Begin: "policy record missing but its stream exists, so its jobs do not start: " +
			"write the policy again, or delete the stream",
		End: unreadable.End, Note: startsNone}
)

// writer writes the wanted policies and schedules, removes overrides that expire, and looks at
// what is stored of policies.
type writer struct {
	broker      *jet.Broker
	store       *store.Store
	schedules   *schedules.Service
	roster      *kv.Roster
	known       *known
	notices     *notice.Log
	sink        queue.Sink
	log         *slog.Logger
	patient     patient
	prepared    lifecycle.Latch
	retakeAfter time.Duration

	retaking chan struct{} // this process's text has lost
	expiring chan struct{} // the policies have changed

	writing sync.Mutex // while policies and schedules are written
	written Wanted

	mu    sync.Mutex
	last  inforce.Entry // that this process wrote
	rival time.Time     // when another process last had another text
}

// write makes policies and schedules those of their set, unless other processes have a newer text
// of it. A text that this process has changed is new, whatever it was before.
func (w *writer) write(ctx context.Context, wanted Wanted) error {
	w.writing.Lock()
	defer w.writing.Unlock()
	changed := w.prepared.Closed() && claim(wanted.Set) != claim(w.written.Set)
	w.written = wanted
	return w.put(ctx, changed)
}

// putAgain is for what JetStream has lost.
func (w *writer) putAgain(ctx context.Context) error {
	if !w.writing.TryLock() {
		return fmt.Errorf("%w: the policies are being written", jet.ErrUnavailable)
	}
	defer w.writing.Unlock()
	return w.put(ctx, false)
}

func (w *writer) put(ctx context.Context, again bool) error {
	if w.written.Policies == nil {
		return nil
	}
	applied := false
	err := w.patient.persist(ctx, "write the policies", func(ctx context.Context) (err error) {
		applied, err = w.replace(ctx, again)
		return err
	})
	if err != nil || !applied {
		return err
	}
	return w.patient.persist(ctx, "write the schedules", func(ctx context.Context) error {
		return w.schedules.Apply(ctx, schedules.File{Set: w.written.Name,
			Policies: w.written.Policies, Entries: w.written.Schedules})
	})
}

// replace makes the wanted policies those of their set, and reports whether they are.
func (w *writer) replace(ctx context.Context, again bool) (applied bool, err error) {
	set := w.written.Set
	others, err := w.roster.Say(ctx, claim(set))
	if err != nil {
		return false, err
	}
	set.Again = again || !slices.ContainsFunc(others, func(text string) bool {
		return strings.HasPrefix(text, set.Name+" ")
	})
	result, err := w.store.Replace(ctx, set)
	if err != nil {
		return false, err
	}
	w.notices.Tell(&superseded, set.Name, notice.If(result.Superseded))
	if result.Superseded {
		w.mu.Lock()
		w.rival = time.Now()
		w.mu.Unlock()
		wake(w.retaking)
		return false, nil
	}
	w.report(ctx, set, result)
	return true, nil
}

// claim is what a process tells others of its text of a set.
func claim(set store.Set) string { return set.Name + " " + set.Text() }

// retake writes a text that was replaced once no other process has had another one for a while.
func (w *writer) retake(ctx context.Context) (time.Duration, error) {
	w.writing.Lock()
	defer w.writing.Unlock()
	set := w.written.Set
	if len(w.notices.Open(&superseded)) == 0 {
		return never, nil
	}
	others, err := w.roster.Say(ctx, claim(set))
	if err != nil {
		w.log.Debug("other processes' texts of the set not read", "error", err)
		return retakeAgain, nil
	}
	now := time.Now()
	if slices.ContainsFunc(others, func(text string) bool {
		return strings.HasPrefix(text, set.Name+" ") && text != claim(set)
	}) {
		w.rival = now
	}
	if now.Sub(w.rival) < w.retakeAfter {
		return min(retakeAgain, w.retakeAfter), nil
	}
	if err := w.put(ctx, true); err != nil && ctx.Err() == nil {
		w.log.Warn("this process's text of the set could not be written: retrying", "set", set.Name,
			"error", err)
	}
	return retakeAgain, nil
}

func (w *writer) report(ctx context.Context, set store.Set, result store.Replaced) {
	var last inforce.Entry
	for _, c := range result.Changes {
		if c.After.Revision > last.Revision {
			last = c.After
		}
		what, level := "policy written by the file", slog.LevelInfo
		isNew := c.Before.Written.Name == ""
		changed := inforce.Diff(c.Before.Written, c.After.Written)
		switch {
		case isNew:
			changed = inforce.Fields(c.After.Written)
		case c.After.Draining:
			what, level = "policy left the file, and is draining", slog.LevelWarn
		case c.After.Source == inforce.SourceAPI:
			what, level = "policy left the file, and belongs to the API", slog.LevelWarn
		}
		name := c.After.Written.Name
		w.log.Log(ctx, level, what, "policy", name, "set", set.Name, "revision", c.After.Revision,
			"new", isNew, "changed", changed)
		w.list(ctx, api.AuditEntry{By: "file of set " + set.Name, What: what, Policy: name,
			Changed: changed})
	}
	w.mu.Lock()
	w.last = last
	w.mu.Unlock()
	for _, name := range result.OfAPI {
		w.notices.Tell(&ofAPI, name, "of the API", "set", set.Name)
	}
	w.notices.Only(&ofAPI, func(name string) bool { return slices.Contains(result.OfAPI, name) })
	for _, err := range result.Differing {
		w.log.Warn("shared limit differs between files: the one "+
			"stored last applies to all its policies", "set", set.Name, "error", err)
	}
	for _, err := range result.Unreadable {
		w.log.Warn("policy not in the file has an unreadable record: it stays",
			"error", err)
	}
}

func (w *writer) list(ctx context.Context, c api.AuditEntry) {
	if err := w.broker.Audit(ctx, c); err != nil && ctx.Err() == nil {
		w.log.Error("change missing from the audit list", "change", c.What, "policy", c.Policy,
			"error", err)
	}
}

func (w *writer) followed(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	w.mu.Lock()
	last := w.last
	w.mu.Unlock()
	if last.Revision > 0 {
		w.known.wait(ctx, last.Written.Name, last.Revision)
	}
}

func (w *writer) notes() []string {
	notes := w.notices.Notes(&unreadable, &orphaned, &superseded, &ofAPI)
	set := w.known.policies()
	for _, name := range slices.Sorted(maps.Keys(set)) {
		for _, text := range set[name].Overridden(time.Now()) {
			notes = append(notes, name+" is overridden: "+text)
		}
	}
	return notes
}

// expire removes levers once they expire.
func (w *writer) expire(ctx context.Context) (time.Duration, error) {
	now, again := time.Now(), time.Duration(never)
	for name, entry := range w.known.policies() {
		for _, l := range entry.Levers {
			if l.Expires != nil {
				again = min(again, max(l.Expires.Sub(now), 0))
			}
		}
		if len(entry.Levers.At(now)) == len(entry.Levers) {
			continue
		}
		before, after, err := w.store.Change(ctx, name, store.Change{Act: store.Pull,
			Edit: func(_ inforce.Entry, e *inforce.Entry) error {
				e.Levers = e.Levers.At(now)
				return nil
			}})
		if err != nil {
			w.log.Debug("an expired override is not removed yet", "policy", name, "error", err)
			again = min(again, expireAgain)
			continue
		}
		if changed := before.Difference(after); len(changed) > 0 {
			w.log.Info("override expired", "policy", name, "changed", changed)
			w.list(ctx, api.AuditEntry{What: "override expired", Policy: name, Changed: changed})
		}
	}
	return again, nil
}

func (w *writer) look(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	found, err := w.store.Inventory(ctx, leftFor)
	if err != nil {
		w.log.Debug("stored policies not listed", "error", err)
		return inventoryAgain, nil
	}
	w.sink.Take(queue.Event{Type: jet.EventInventory, Data: found})
	for name, err := range found.Unreadable {
		w.notices.Tell(&unreadable, name, err.Error(), "error", err)
	}
	for name, orphan := range found.Orphaned {
		w.notices.Tell(&orphaned, name, "no record", "stream", orphan.Name, "jobs", orphan.Jobs,
			"partitions", orphan.Partitions)
	}
	w.notices.Only(&unreadable, has(found.Unreadable))
	w.notices.Only(&orphaned, has(found.Orphaned))
	return max(inventoryAgain, restAfter(time.Since(began), len(w.known.policies()))), nil
}

func has[V any](m map[string]V) func(string) bool {
	return func(key string) bool { _, found := m[key]; return found }
}

const (
	// Partitions change hands: two misses in a row count.
	ownersEvery = 2 * time.Second
	// A timeout still counts as an owner.
	ownerPatience = 500 * time.Millisecond
)

var unowned = notice.Kind{Level: slog.LevelWarn, Of: "policy",
	Begin: "jobs are waiting, but no drainer owns their policy",
	End:   "a drainer owns the policy, or its jobs no longer wait"}

type owners struct {
	broker  *jet.Broker
	known   *known
	notices *notice.Log
	sink    queue.Sink
	asked   map[string]*asked
}

type asked struct {
	partition int // the same while it has no owner
	missing   int
}

// look asks only about policies that had jobs: idle ones must be free.
func (o *owners) look(ctx context.Context) (time.Duration, error) {
	set, waiting := o.known.policies(), o.broker.Waiting()
	for name, a := range o.asked {
		if _, found := set[name]; found && waiting[name] == 0 {
			o.found(name, a, false)
		}
	}
	maps.DeleteFunc(o.asked, func(name string, _ *asked) bool { return waiting[name] == 0 })
	o.notices.Forget(&unowned, has(set))
	for name := range waiting {
		entry := set[name]
		if !entry.HasQueue() {
			continue
		}
		a := o.asked[name]
		if a == nil { // a drainer gets time after a start
			o.asked[name] = &asked{}
			continue
		}
		a.partition %= entry.Policy.Partitions
		if waits, known := o.waits(ctx, name, a.partition); known {
			o.found(name, a, waits)
		}
	}
	return ownersEvery, nil
}

func (o *owners) found(name string, a *asked, waits bool) {
	if a.missing++; !waits {
		a.missing = 0
		a.partition++
	}
	if o.notices.Tell(&unowned, name, notice.If(a.missing > 1), "partition", a.partition) {
		o.sink.Take(queue.Event{Type: jet.EventWithoutDrainer, Policy: name,
			Value: jet.Whether(a.missing > 1)})
	}
}

// known: it could be determined.
func (o *owners) waits(ctx context.Context, policy string, partition int) (waits, known bool) {
	asking, cancel := context.WithTimeout(ctx, ownerPatience)
	defer cancel()
	owned, err := o.broker.Owned(asking, policy, partition)
	if owned || err != nil {
		return false, err == nil
	}
	depth, err := o.broker.Depth(ctx, policy)
	return depth > 0, err == nil || errors.Is(err, jet.ErrNoStream)
}
