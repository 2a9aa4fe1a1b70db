// Package watch tells people what happens in an installation: the events of jobs as they come, and
// figures of the last minute.
//
// Nobody pays for it while nobody looks. Drainers leave most events out while none listens (see
// [queue.Event]), so a [Watch] listens only while it is asked, and for two minutes more.
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
	"github.com/penstock-mq/penstock/queue"
)

const (
	// linger is how long events are heard after the last question.
	linger = 2 * time.Minute
	// kept is how many events are kept for listeners that come back.
	kept = 1024
	// MaxRecent is how many of them a listener can be told that has heard none.
	MaxRecent = kept
	// behind is how many events a listener may be behind.
	behind = 256
	// MaxListeners is how many may listen at once, in shares ([admission.Budget]).
	MaxListeners = 100
)

// Why a listener is told nothing more.
const (
	Slow     = "slow"     // it was too far behind
	Stopping = "stopping" // the process is about to stop
)

// Event is one step of a job. ID orders the events of one process: they have numbers without gaps,
// but for filters.
type Event struct {
	ID string `json:"-"`
	// At is the instant of a start by its drainer's clock, else when the event was heard.
	At         time.Time `json:"at"`
	Type       string    `json:"type"`
	Policy     string    `json:"policy"`
	Key        string    `json:"key"`
	Job        string    `json:"job,omitempty"`
	Tags       []string  `json:"tags,omitempty"`
	Attempt    int       `json:"attempt,omitempty"`
	WaitMS     int64     `json:"wait_ms,omitempty"`
	DurationMS int64     `json:"duration_ms,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Error      string    `json:"error,omitempty"`
	PauseMS    int64     `json:"pause_ms,omitempty"`
	Outflow    float64   `json:"outflow,omitempty"`
	All        bool      `json:"all,omitempty"`
}

// Types are those that an event can have.
var Types = []string{queue.EventAccepted, queue.EventStarted, queue.EventDone, queue.EventFailed,
	queue.EventThrottled, queue.EventDead, queue.EventCancelled, queue.EventBreakerOpened,
	queue.EventBreakerClosed, queue.EventAdapted, queue.EventLimitBroken,
	queue.EventScheduleRefused, queue.EventScheduleMissed, queue.EventCallbackLost}

// Listener hears events until Events is closed, and must be left.
type Listener struct {
	Events <-chan Event
	// Missed: events after the one that the listener heard last are gone.
	Missed bool

	w      *Watch
	from   admission.Client
	events chan Event
	wants  func(Event) bool
	reason string // why Events is closed
}

// Watch hears the events of an installation. It is safe for concurrent use.
type Watch struct {
	broker *queue.Broker
	now    func() time.Time
	hears  atomic.Bool // events, so that it counts

	mu        sync.Mutex
	closed    bool
	stop      func() // hearing; nil while nothing is heard
	idle      *time.Timer
	began     time.Time // when it began to hear
	number    uint64    // of the last event
	recent    []Event   // a ring: the last ones, by their number
	listeners map[*Listener]bool
	places    *admission.Budget
	figures   map[string]*figures // by policy
}

// New makes a watch that hears nothing yet.
func New(broker *queue.Broker) *Watch {
	return &Watch{broker: broker, now: time.Now, listeners: map[*Listener]bool{},
		places: admission.NewBudget(MaxListeners)}
}

// Close ends all listeners. Whoever asks afterwards hears nothing.
func (w *Watch) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for l := range w.listeners {
		w.end(l, Stopping)
	}
	w.silence()
}

// Listen returns a listener of a client for the events that wants returns true for. After the id of
// an event that it heard before, it hears those in between first, as far as they are kept; without
// an id the last ones that are kept, at most so many as recent says.
func (w *Watch) Listen(from admission.Client, after string, recent int,
	wants func(Event) bool) (*Listener, error) {

	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.hear(); err != nil {
		return nil, err
	}
	if err := w.places.Reserve(from, 1); err != nil {
		return nil, err
	}
	l := &Listener{w: w, from: from, events: make(chan Event, behind+kept), wants: wants}
	l.Events = l.events
	if after == "" {
		w.recall(l, recent)
	} else {
		l.Missed = !w.repeat(l, after)
	}
	w.listeners[l] = true
	return l, nil
}

// Leave ends the listener.
func (l *Listener) Leave() {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.w.end(l, "")
}

// Reason is why Events is closed.
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

// hear begins to hear events, unless it does already, and goes on for a while.
func (w *Watch) hear() error {
	if w.closed {
		return fmt.Errorf("%w: %w", admission.ErrUnavailable, admission.ErrStopping)
	}
	if w.stop != nil {
		w.idle.Reset(linger)
		return nil
	}
	stop, err := w.broker.Listen("*", ">", w.heard)
	if err != nil {
		return fmt.Errorf("%w: %w", admission.ErrUnavailable, err)
	}
	w.stop, w.began, w.number = stop, w.now(), 0
	w.recent, w.figures = make([]Event, kept), map[string]*figures{}
	w.idle = time.AfterFunc(linger, w.rest)
	w.hears.Store(true)
	return nil
}

// rest ends the hearing when nobody has asked for a while.
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
		w.stop, w.recent, w.figures = nil, nil, nil
	}
}

// id is that of the n-th event since it began to hear.
func (w *Watch) id(n uint64) string {
	return strconv.FormatInt(w.began.UnixMicro(), 36) + "-" + strconv.FormatUint(n, 10)
}

var errID = errors.New("no id of an event")

// numberOf is the number of an event that was heard since it began to.
func (w *Watch) numberOf(id string) (uint64, error) {
	_, text, _ := strings.Cut(id, "-")
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > w.number || w.id(n) != id {
		return 0, errID
	}
	return n, nil
}

// recall tells a listener the last events that it wants, at most so many.
func (w *Watch) recall(l *Listener, most int) {
	var found []Event
	for n := w.number; n > 0 && n+kept > w.number && len(found) < most; n-- {
		if e := w.recent[n%kept]; l.wants(e) {
			found = append(found, e)
		}
	}
	for _, e := range slices.Backward(found) {
		l.events <- e // there is room for all of them
	}
}

// repeat tells a listener what it has missed, and reports whether that is all of it.
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
			l.events <- e // there is room for all of them
		}
	}
	return first == from+1
}

// heard takes an event.
func (w *Watch) heard(policy string, heard queue.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stop == nil {
		return // it came late
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
	e := Event{ID: w.id(w.number), At: heard.At, Type: heard.Type,
		Policy: policy, Key: heard.Key.Raw(), Job: heard.Job,
		Tags: heard.Tags, Attempt: heard.Attempt,
		WaitMS: heard.WaitMS, DurationMS: heard.DurationMS, Reason: heard.Reason,
		Error: heard.Error, PauseMS: heard.PauseMS, Outflow: heard.Outflow, All: heard.All}
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
