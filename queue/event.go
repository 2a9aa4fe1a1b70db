package queue

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/queue/internal/jsapi"
	"github.com/penstock-mq/penstock/queue/job"
)

// The published types of an [Event].
const (
	EventAccepted  = "accepted" // stored, and seen by its valve
	EventStarted   = "started"  // an attempt began
	EventProgress  = "progress" // of a running attempt
	EventDone      = "done"
	EventFailed    = "failed"    // an attempt failed; there may be more
	EventThrottled = "throttled" // the target asked for a pause; not an attempt
	EventDead      = "dead"
	EventCancelled = "cancelled" // by an operator

	// The bucket's target is down, so only probes start and no attempt counts; it is back.
	EventBreakerOpened = "breaker_opened"
	EventBreakerClosed = "breaker_closed"

	EventAdapted = "adapted"

	// A tick of a schedule met a full bucket and will be retried; a tick was dropped, for this
	// Reason.
	EventScheduleRefused = "schedule_refused"
	EventScheduleMissed  = "schedule_missed"

	// The outcome of a job will not be posted to its callback. Reason: full or refused.
	EventCallbackLost = "callback_lost"

	// An auditor saw starts that broke a limit: see Reason.
	EventLimitBroken = "limit_broken"
)

// Types that are not published, for metrics and logs.
const (
	// EventReturned: an assigned job returned to its queue, without an attempt, for the reason
	// Name: rate (its slot was gone), lease (expired) or order (an earlier job returned).
	EventReturned = "returned"
	// EventUncounted: a run ended without an attempt. Name: returned (before the start) or
	// uncounted (interrupted, or its remote worker left).
	EventUncounted = "uncounted"
	// EventLate, once a second: starts fell behind their outflow For this long. Name is the cause,
	// in the words of docs/operate.md.
	EventLate = "late"
	// EventLimitBlocked, once a second: the limit Name blocked buckets For this long in total.
	EventLimitBlocked = "limit_blocked"
	// EventLimitsLeft, once a second: Data is a [][api.LimitLeft] of the limits that count all keys
	// or are shared, and whose state this drainer keeps. Of limits per key it has Open, of all keys
	// together, while that is not 0.
	EventLimitsLeft = "limits_left"
	// EventOwnable: Value is 1 if this drainer may start the policy's jobs, 0 if not.
	EventOwnable = "ownable"
	// EventWithoutWorkers: Value is 1 while jobs are due without any worker.
	EventWithoutWorkers = "without_workers"
	// EventOwned: this drainer owns Value partitions.
	EventOwned = "owned"
	// EventBreakers: Value breakers are open in this drainer.
	EventBreakers = "breakers"
	// EventLowered: Value buckets are slowed by their target's observed limit.
	EventLowered = "lowered"
	// EventLease: Value is 1 while this drainer holds its lease.
	EventLease = "lease"
	// EventRecordDamaged: a record in the KV bucket Name is unreadable and rebuilt.
	EventRecordDamaged = "record_damaged"
	// EventRecordsNewer: Value records have a newer format and block their partitions.
	EventRecordsNewer = "records_newer"
	// EventDiscarded: Value dead letters made room for new ones.
	EventDiscarded = "discarded"
	// EventHistoryLost: a job's end was not added to the history.
	EventHistoryLost = "history_lost"

	// EventAdmitted: a job got the verdict Name.
	EventAdmitted = "admitted"
	// EventChecked: Value is 1 if a check was allowed.
	EventChecked = "checked"
	// EventShadowed: the shadow limit Name was checked for a request. Value is 1 if it would have
	// refused the request, or delayed it For this long.
	EventShadowed = "shadowed"
	// EventTicked: a schedule's tick was submitted, refused or missed: Name.
	EventTicked = "ticked"
	// EventAnswered: the API Name, http or nats, answered with status Value.
	EventAnswered = "answered"
	// EventFollowed: this process now follows the changed policies in Data, a policy.Entries; nil
	// are gone.
	EventFollowed = "followed"
	// EventWithoutDrainer: Value is 1 while jobs wait and no drainer owns the policy.
	EventWithoutDrainer = "without_drainer"
	// EventApplyFailed: Value is 1 while the policy's stream does not match the policy.
	EventApplyFailed = "apply_failed"
	// EventInventory, every few seconds: Data is a store.Inventory.
	EventInventory = "inventory"
	// EventStored, every few seconds: Data is a [Storage].
	EventStored = "stored"
	// EventWritable, every second: Value is 1 if the embedded server can write.
	EventWritable = "writable"
	// EventStoreUp: Value is 1 while the shared store of limits answers.
	EventStoreUp = "store_up"
	// EventFellBack: a decision was made without the store, by the on_store_error Name.
	EventFellBack = "fell_back"
	// EventGateways: Data is the []string of the names of gateways' limits.
	EventGateways = "gateways"
	// EventHits: Value hits of a gateway's limit, named Name by its and their values; Reason is the
	// statistic of envoyproxy/ratelimit.
	EventHits = "hits"
)

// EventTypes are the types of events that go over NATS.
var EventTypes = []string{EventAccepted, EventStarted, EventProgress, EventDone, EventFailed,
	EventThrottled, EventDead, EventCancelled, EventBreakerOpened, EventBreakerClosed, EventAdapted,
	EventLimitBroken, EventScheduleRefused, EventScheduleMissed, EventCallbackLost}

// Sink takes events, from many goroutines, and returns at once. Only existing policies are named,
// which bounds the number of metric series.
type Sink interface{ Take(Event) }

// SinkFunc makes a function a [Sink].
type SinkFunc func(Event)

// Take calls f.
func (f SinkFunc) Take(e Event) { f(e) }

// Sinks passes events on to several sinks, which may be nil.
type Sinks []Sink

// Take passes e on.
func (s Sinks) Take(e Event) {
	for _, one := range s {
		if one != nil {
			one.Take(e)
		}
	}
}

// Whether returns 1 for true.
func Whether(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// Event is mostly a step of a job. [EventTypes] are published on penstock.event.<policy>.<key>, in
// core NATS: only listeners get them, and a crash may lose some, so use metrics for counts. Above
// 1,000 events a second of one policy, a process omits the rest without a listener, and notices a
// new one within half a second.
type Event struct {
	V    int     `json:"v"`
	Type string  `json:"type"`
	Job  string  `json:"job"` // <policy>:<sequence>
	Key  job.Key `json:"key"`
	// Tags are missing if the publisher no longer has the job's headers.
	Tags       []string `json:"tags,omitempty"`
	Attempt    int      `json:"attempt,omitempty"` // 1 is the first
	WaitMS     int64    `json:"wait_ms,omitempty"` // started: since the job was accepted
	DurationMS int64    `json:"duration_ms,omitempty"`
	Reason     string   `json:"reason,omitempty"`
	Error      string   `json:"error,omitempty"`
	Progress   string   `json:"progress,omitempty"`
	// PauseMS is the pause of the bucket's starts: the target throttled (0: without a duration) or
	// reported an exhausted quota.
	PauseMS int64   `json:"pause_ms,omitempty"`
	Outflow float64 `json:"outflow,omitempty"`
	// All: the breaker covers all buckets of the policy in this drainer.
	All bool `json:"all,omitempty"`

	// At is when a start was last checked, by the drainer's clock. Cost and Costs are the start's
	// unless 1, Used the attempt's.
	At    time.Time        `json:"at,omitzero"`
	Cost  int64            `json:"cost,omitempty"`
	Costs map[string]int64 `json:"costs,omitempty"`
	Used  map[string]int64 `json:"used,omitempty"`
	// The end of a run has its start's At as Started if a limit counts from the answer, unless no
	// request was sent. AnswerMS is the time from then to the answer; without one, to max_delay
	// after the end.
	Started  time.Time `json:"started,omitzero"`
	AnswerMS int64     `json:"answer_ms,omitempty"`
	// Shadow has the delay, in milliseconds, by each shadow limit.
	Shadow map[string]int64 `json:"shadow,omitempty"`

	// Not published. Accepted is when the job was stored, Trace the id of its sampled trace, For
	// how late it started, Answer a [job.Settlement.Answer]. The types describe the others.
	Policy   string        `json:"-"`
	Header   nats.Header   `json:"-"`
	Accepted time.Time     `json:"-"`
	Reply    *job.Reply    `json:"-"`
	Trace    string        `json:"-"`
	Name     string        `json:"-"`
	Answer   string        `json:"-"`
	For      time.Duration `json:"-"`
	Value    int64         `json:"-"`
	Data     any           `json:"-"`

	// From is the publishing process, and N numbers its events of the policy. A missing number was
	// lost, or omitted without a listener.
	From string `json:"from,omitempty"`
	N    uint64 `json:"n,omitempty"`
}

// Event is the subject of a bucket's events; both arguments may be NATS wildcards.
func (n Names) Event(policy string, k job.Key) string {
	return n.lower + ".event." + policy + "." + string(k)
}

// Events tells listeners and counts what happens to jobs. It is cheap without listeners: the first
// event of a period is a request, which the server refuses at once without a subscriber.
type Events struct {
	nc        *nats.Conn
	names     Names
	log       *slog.Logger
	tally     *Tally
	histories *histories

	once  sync.Once
	inbox string // prefix of a policy's name
	mu    sync.Mutex
	gates map[string]*gate
}

// Events returns what tells of events. It is a [Sink].
func (b *Broker) Events() *Events { return b.events }

type gate struct {
	since  time.Time
	told   int
	denied bool // no listener was reported in this period
	nobody bool // per the server's latest report

	telling sync.Mutex // held to publish in order
	number  uint64
}

const (
	gatePeriod = 250 * time.Millisecond
	gateFree   = 250 // events of a period that are published in any case
)

func (g *gate) admit(now time.Time) (publish, ask bool) {
	if past := now.Sub(g.since); past >= gatePeriod {
		g.nobody = g.denied && past < 2*gatePeriod // not by a report from before a pause
		g.since, g.told, g.denied = now, 0, false
	}
	g.told++
	return g.told <= gateFree || !g.nobody, g.told == 1
}

func (e *Events) deny(m *nats.Msg) {
	if m.Header.Get("Status") != "503" {
		return // a listener answered, which it need not
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if g := e.gates[m.Subject[len(e.inbox):]]; g != nil {
		g.denied, g.nobody = true, true
	}
}

func (e *Events) gate(policy string) *gate {
	e.once.Do(func() {
		e.inbox, e.gates = e.nc.NewInbox()+".", map[string]*gate{}
		if _, err := e.nc.Subscribe(e.inbox+"*", e.deny); err != nil {
			e.log.Debug("events are published whether or not anybody listens", "error", err)
		}
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	g := e.gates[policy]
	if g == nil {
		g = &gate{}
		e.gates[policy] = g
	}
	return g
}

// Take publishes an event, or counts it in the policy's minutes.
func (e *Events) Take(of Event) {
	switch {
	case of.Type == EventChecked:
		e.tally.Count(of.Policy, CountDenied-Count(of.Value), 1) // CountAllowed comes before it
	case slices.Contains(EventTypes, of.Type):
		e.Publish(of.Policy, of)
	case of.Type == EventLate && !job.Causes[of.Name].Meant:
		e.tally.Count(of.Policy, countLateMS, of.For.Milliseconds())
	case of.Type == EventAdmitted && of.Name == "rejected":
		e.tally.Count(of.Policy, CountRefused, 1)
	case of.Type == EventAdmitted:
		e.tally.Count(of.Policy, CountAdmitted, 1)
	}
}

// Publish publishes an event without blocking. The end of a job also goes to the policy's history.
func (e *Events) Publish(policy string, of Event) {
	e.histories.add(policy, of)
	for _, what := range countedBy[of.Type] {
		e.tally.Count(policy, what, 1)
	}
	g := e.gate(policy)
	g.telling.Lock()
	defer g.telling.Unlock()
	g.number++
	now := time.Now()
	e.mu.Lock()
	publish, ask := g.admit(now)
	e.mu.Unlock()
	if !publish {
		return
	}
	of.V, of.From, of.N = job.FormatVersion, e.tally.process, g.number
	body, err := json.Marshal(of)
	switch subject := e.names.Event(policy, of.Key); {
	case err != nil:
	case ask:
		err = e.nc.PublishRequest(subject, e.inbox+policy, body)
	default:
		err = e.nc.Publish(subject, body)
	}
	if err != nil {
		e.log.Debug("event not published", "policy", policy, "type", of.Type, "error", err)
	}
}

// Listen calls heard for each event of a policy ("*": all) and key (">": all), one at a time, until
// stop.
func (e *Events) Listen(policy string, k job.Key,
	heard func(policy string, e Event)) (stop func(), err error) {
	prefix := len(e.names.lower + ".event.")
	sub, err := e.nc.Subscribe(e.names.Event(policy, k), func(m *nats.Msg) {
		var of Event
		if err := json.Unmarshal(m.Data, &of); err != nil || of.V != job.FormatVersion {
			e.log.Debug("event of another format", "subject", m.Subject, "error", err)
			return
		}
		name, _, _ := strings.Cut(m.Subject[prefix:], ".")
		heard(name, of)
	})
	if err != nil {
		return nil, fmt.Errorf("listen to events of %s: %w", policy, jsapi.Translate(err))
	}
	return func() { _ = sub.Unsubscribe() }, nil
}
