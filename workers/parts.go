package workers

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/core"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// parts are a drainer's. None depends on the drainer.
type parts struct {
	*calls
	broker    *jet.Broker
	catalog   *catalog
	gate      *gate
	callbacks *callbacks
	pool      *pool
	backlogs  *backlogs
	remote    *remote
	lender    *lender
	questions *questions
	outages   *outages
	proof     *proof
	*unreadable
}

func newParts(nc *nats.Conn, broker *jet.Broker, jobs context.Context, o Options) *parts {
	l := newLoop(o.Logger, queue.Sinks{o.Sink, broker.Events(), attempts{o.Logger}})
	c := newCalls(l, nc, patience(o.Lease))
	p := &parts{calls: c, broker: broker,
		catalog: &catalog{log: o.Logger, names: broker.Names(), target: o.Target,
			attempt: o.Attempt, keep: func(policy string, keep time.Duration) {
				broker.Events().KeepHistory(policy, keep,
					func() { l.tell(jet.EventHistoryLost, policy, 1) })
			},
			handlers: map[string]Handler{}, policies: map[string]policy.Policy{},
			gone: map[string]time.Time{}, running: map[string]Handler{}},
		gate:      &gate{clock: l.clock},
		questions: &questions{calls: c, broker: broker},
		outages:   &outages{loop: l, policies: map[string]*outage{}},
		proof:     &proof{loop: l, patient: o.Lease},
	}
	p.unreadable = &unreadable{in: l, table: broker.Tables().Partitions}
	p.backlogs = &backlogs{calls: c, broker: broker, catalog: p.catalog, questions: p.questions,
		memory: o.Memory, all: map[handle.Partition]*backlog{},
		owned: map[string]int{}, places: make(chan struct{}, openAtOnce), unreadable: p.unreadable}
	p.callbacks = &callbacks{calls: c,
		producer: broker.NewProducer(jet.ProducerOptions{Timeout: c.patience})}
	p.pool = &pool{calls: c, gate: p.gate, broker: broker, catalog: p.catalog, backlogs: p.backlogs,
		callbacks: p.callbacks, jobs: jobs, results: make(chan core.Finished, 1024)}
	p.remote = &remote{calls: c, pool: p.pool, catalog: p.catalog, patient: o.Lease / 2,
		workerless: workerless{l, map[string]*missing{}}, offers: map[string]*offer{},
		others: map[string]pace.Instant{}}
	p.lender = &lender{calls: c, broker: broker, catalog: p.catalog, own: p.remote,
		jobs: jobs, crews: map[string]*workforce{}, apart: map[string]bool{},
		untold: make(chan struct{}, mostUntold)}
	return p
}

// patience is the time limit of a call, with room for another one within the lease.
func patience(lease time.Duration) time.Duration {
	return min(max(lease/3, time.Second), 3*time.Second)
}

// performer carries out the core's actions.
type performer struct{ *parts }

func (p performer) Open(o core.Opening)       { p.backlogs.Open(o) }
func (p performer) Close(of handle.Partition) { p.backlogs.Close(of) }
func (p performer) Ack(r handle.Ref)          { p.backlogs.Ack(r) }
func (p performer) Fetch(refs []handle.Ref)   { p.backlogs.Fetch(refs) }
func (p performer) Offer(policy string)       { p.remote.Offer(policy) }
func (p performer) Refuse(worker string)      { p.say(worker, job.Turn{State: job.TurnRefused}) }
func (p performer) Report(r record.Report)    { p.questions.Report(r) }

func (p performer) Start(r valve.Run) {
	if r.Worker != "" {
		p.remote.start(r)
	} else {
		p.pool.start(r)
	}
}
