// Package watch observes events, and describes the last minute. A [Watch] listens for two minutes
// after a request, because drainers omit most events without a listener.
package watch

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/queue"
)

const (
	linger = 2 * time.Minute
	// for reconnecting listeners
	kept = 1024
	// MaxRecent bounds the events that a new listener may ask for.
	MaxRecent = kept
	behind    = 256
	// in shares per client ([admit.Budget])
	MaxListeners = 100
)

// Why a listener ended.
const (
	Slow     = "slow"     // too far behind
	Stopping = "stopping" // the process is stopping
)

// Types are the types of events.
var Types = queue.EventTypes

// Listener receives events until Events is closed. Call Leave afterwards.
type Listener struct {
	Events <-chan api.Event
	// events since the last one received are lost
	Missed bool

	w      *Watch
	from   admit.Client
	events chan api.Event
	wants  func(api.Event) bool
	reason string
}

// Watch is safe for concurrent use.
type Watch struct {
	broker *jet.Broker
	now    func() time.Time
	hears  atomic.Bool // for counting without the lock

	mu        sync.Mutex
	closed    bool
	stop      func()
	idle      *time.Timer
	began     time.Time   // start of listening
	number    uint64      // of the last event
	recent    []api.Event // by number modulo kept
	listeners map[*Listener]bool
	places    *admit.Budget
	figures   map[string]*figures

	ask         func() error // the other processes, for their counts
	unasked     bool         // the last ask failed: nothing is known of them
	askedOthers time.Time
	others      map[string]others // by their names
}

// New returns a Watch without listeners.
func New(broker *jet.Broker) *Watch {
	return &Watch{broker: broker, now: time.Now, listeners: map[*Listener]bool{},
		places: admit.NewBudget(MaxListeners)}
}

// Close ends all listeners.
func (w *Watch) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for l := range w.listeners {
		w.end(l, Stopping)
	}
	w.silence()
}

// Listen first repeats the kept events after an id, or up to recent ones.
func (w *Watch) Listen(from admit.Client, after string, recent int,
	wants func(api.Event) bool) (*Listener, error) {

	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.hear(); err != nil {
		return nil, err
	}
	if err := w.places.Reserve(from, 1); err != nil {
		return nil, err
	}
	l := &Listener{w: w, from: from, events: make(chan api.Event, behind+kept), wants: wants}
	l.Events = l.events
	if after == "" {
		w.recall(l, recent)
	} else {
		l.Missed = !w.repeat(l, after)
	}
	w.listeners[l] = true
	return l, nil
}

// Leave ends a listener.
func (l *Listener) Leave() {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.w.end(l, "")
}

// Reason tells why Events was closed; empty after Leave.
func (l *Listener) Reason() string {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return l.reason
}

func (w *Watch) end(l *Listener, reason string) {
	if !w.listeners[l] {
		return
	}
	l.reason = reason
	close(l.events)
	delete(w.listeners, l)
	w.places.Release(l.from, 1)
}

func (w *Watch) hear() error {
	if w.closed {
		return fmt.Errorf("%w: %w", admission.ErrUnavailable, admit.ErrStopping)
	}
	if w.stop != nil {
		w.idle.Reset(linger)
		return nil
	}
	stop, err := w.broker.Events().Listen("*", ">", w.heard)
	if err != nil {
		return fmt.Errorf("%w: %w", admission.ErrUnavailable, err)
	}
	ask, unask, err := w.broker.Tally().ListenRecents(w.answered)
	if err != nil {
		stop()
		return fmt.Errorf("%w: %w", admission.ErrUnavailable, err)
	}
	w.stop = func() { stop(); unask() }
	w.ask, w.began, w.number = ask, w.now(), 0
	w.others, w.askedOthers = map[string]others{}, time.Time{}
	w.recent, w.figures = make([]api.Event, kept), map[string]*figures{}
	w.idle = time.AfterFunc(linger, w.rest)
	w.hears.Store(true)
	return nil
}

func (w *Watch) rest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.listeners) > 0 {
		w.idle.Reset(linger)
		return
	}
	w.silence()
}

func (w *Watch) silence() {
	if w.stop != nil {
		w.hears.Store(false)
		w.stop()
		w.idle.Stop()
		w.stop, w.recent, w.figures, w.others = nil, nil, nil, nil
	}
}

func (w *Watch) id(n uint64) string {
	return strconv.FormatInt(w.began.UnixMicro(), 36) + "-" + strconv.FormatUint(n, 10)
}

var errID = errors.New("no id of an event")

func (w *Watch) numberOf(id string) (uint64, error) {
	_, text, _ := strings.Cut(id, "-")
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > w.number || w.id(n) != id {
		return 0, errID
	}
	return n, nil
}

func (w *Watch) recall(l *Listener, most int) {
	var found []api.Event
	for n := w.number; n > 0 && n+kept > w.number && len(found) < most; n-- {
		if e := w.recent[n%kept]; l.wants(e) {
			found = append(found, e)
		}
	}
	for _, e := range slices.Backward(found) {
		l.events <- e
	}
}

func (w *Watch) repeat(l *Listener, after string) bool {
	from, err := w.numberOf(after)
	if err != nil {
		return false
	}
	first := from + 1
	if w.number > kept && first <= w.number-kept {
		first = w.number - kept + 1
	}
	for n := first; n <= w.number; n++ {
		if e := w.recent[n%kept]; l.wants(e) {
			l.events <- e
		}
	}
	return first == from+1
}

func (w *Watch) heard(policy string, heard queue.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stop == nil {
		return
	}
	now := w.now()
	if f := w.of(policy); f != nil {
		f.heard(now, heard)
	}
	w.number++
	if heard.At.IsZero() {
		heard.At = now
	}
	heard.At = heard.At.UTC().Round(time.Microsecond)
	e := api.Event{ID: w.id(w.number), At: heard.At, Type: heard.Type,
		Policy: policy, Key: heard.Key.Raw(), Job: heard.Job,
		Tags: heard.Tags, Attempt: heard.Attempt,
		WaitMS: heard.WaitMS, DurationMS: heard.DurationMS, Reason: heard.Reason,
		Error: heard.Error, Progress: heard.Progress, PauseMS: heard.PauseMS,
		Outflow: heard.Outflow, All: heard.All}
	w.recent[w.number%kept] = e
	for l := range w.listeners {
		if !l.wants(e) {
			continue
		}
		select {
		case l.events <- e:
		default:
			w.end(l, Slow)
		}
	}
}
