package jet

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
	"github.com/penstock-mq/penstock/queue"
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
	// EventFollowed: this process now follows the changed policies in Data, a inforce.Entries; nil
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

// Whether returns 1 for true.
func Whether(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// Event is the subject of a bucket's events; both arguments may be NATS wildcards.
func (n Names) Event(policy string, k queue.Key) string {
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

// Events returns what tells of events. It is a [queue.Sink].
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
func (e *Events) Take(of queue.Event) {
	switch {
	case of.Type == EventChecked:
		e.tally.Count(of.Policy, CountDenied-Count(of.Value), 1) // CountAllowed comes before it
	case slices.Contains(queue.EventTypes, of.Type):
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
func (e *Events) Publish(policy string, of queue.Event) {
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
func (e *Events) Listen(policy string, k queue.Key,
	heard func(policy string, e queue.Event)) (stop func(), err error) {
	prefix := len(e.names.lower + ".event.")
	sub, err := e.nc.Subscribe(e.names.Event(policy, k), func(m *nats.Msg) {
		var of queue.Event
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
