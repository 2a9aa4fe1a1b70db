// Package jet defines Penstock's layout on NATS JetStream (DESIGN.md, section 4), and how jobs
// enter (Producer), wait (Backlog) and leave (Done, Bury). It does not decide on rates.
package jet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
	"github.com/penstock-mq/penstock/internal/queue/kv"
	"github.com/penstock-mq/penstock/internal/server/installation"
	"github.com/penstock-mq/penstock/internal/server/natsconn"
)

// minServerVersion is the oldest nats-server with every needed feature.
const minServerVersion = "2.14.0"

// maxAttempts bounds the records of attempts to about 60 MB. A job whose record was evicted counts
// from zero after a takeover.
const maxAttempts = 200_000

// Options configure a [Broker]. The zero value works.
type Options struct {
	Prefix string
	// Domain of JetStream; empty: of the server that the connection reaches.
	Domain string
	// Replicas of streams and KV buckets: 1 (default), 3 or 5.
	Replicas int
	// Joins leaves the streams and KV buckets that are there as they are, whatever Replicas says.
	Joins bool
	// Lister is a broker of this process that calls [Broker.Ration] periodically, if there is one.
	Lister *Broker
	// Logger is [slog.Default] if nil.
	Logger *slog.Logger
}

// Broker accesses one installation over a NATS connection, which it does not close. It is safe for
// concurrent use.
type Broker struct {
	nc       *nats.Conn
	js       *jsapi.Conn
	names    Names
	domain   string
	replicas int
	log      *slog.Logger
	lister   *Broker

	tables  Tables
	shared  switchboard
	resting sync.Map // backlogs
	owed    sync.Map // by stream and partition

	bounds *bounds
	tally  *Tally
	events *Events

	apart *apart

	refusal atomic.Pointer[error]
}

// Refuse makes every Publish and change of a policy or schedule fail at once with [ErrStorage], or
// a reason that is [ErrUnavailable], until called with nil: JetStream does not answer when it
// cannot write.
func (b *Broker) Refuse(reason error) {
	if reason == nil {
		b.refusal.Store(nil)
		return
	}
	if !errors.Is(reason, ErrUnavailable) {
		reason = fmt.Errorf("%w: %w", ErrStorage, reason)
	}
	b.refusal.Store(&reason)
}

// Refused returns the reason given to [Broker.Refuse], or nil.
func (b *Broker) Refused() error {
	if reason := b.refusal.Load(); reason != nil {
		return *reason
	}
	return nil
}

// Unstorable returns why nothing can be stored now, such as a job's end, or nil.
func (b *Broker) Unstorable() error {
	if err := b.Refused(); err != nil {
		return err
	}
	if lasts := b.js.Silence.Lasts(); lasts > 0 {
		return fmt.Errorf("%w: JetStream has stored nothing for %v", ErrUnavailable,
			lasts.Round(time.Second))
	}
	return nil
}

// probe writes a record that nobody reads. That its table is missing is an answer, too.
func (b *Broker) probe(ctx context.Context) {
	locks := b.tables.locks
	err := locks.Set(ctx, "probe", []byte("-"), time.Minute)
	if errors.Is(err, nats.ErrNoResponders) {
		if _, err = locks.Created(ctx); errors.Is(err, ErrNoStream) {
			b.js.Silence.Answered()
		}
	}
}

// NewBroker does no I/O. The connection should reconnect without limit and ping every few seconds.
// Its Timeout, 2 s by default, bounds requests to JetStream.
func NewBroker(nc *nats.Conn, o Options) (*Broker, error) {
	names, err := NewNames(o.Prefix)
	if err != nil {
		return nil, err
	}
	o.Replicas = cmp.Or(o.Replicas, 1)
	if err := installation.CheckReplicas(o.Replicas); err != nil {
		return nil, fmt.Errorf("replicas: %w", err)
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	js, err := jsapi.New(nc, o.Domain)
	if err != nil {
		return nil, err
	}
	js.Joins = o.Joins
	b := &Broker{nc: nc, js: js, names: names, domain: o.Domain, replicas: o.Replicas,
		log: o.Logger, lister: o.Lister, shared: switchboard{nc: nc}}
	table := func(name, holds string, o kv.Options) *kv.Table {
		o.Description = "Penstock: " + holds
		return kv.New(js, names.bucket(name), o, b.log)
	}
	b.tables = Tables{
		Drainers:   table("DRAINERS", "leases of drainers", kv.Options{}),
		Admitters:  table("ADMITTERS", "leases of admitters", kv.Options{}),
		Partitions: table("PARTITIONS", "owners and checkpoints of partitions", kv.Options{}),
		Attempts:   table("ATTEMPTS", "failed attempts of jobs", kv.Options{Most: maxAttempts}),
		Policies: table("POLICIES", "policies, and limits of single keys",
			kv.Options{Refusal: &b.refusal}),
		locks: table("LOCKS", "locks of processes that change streams", kv.Options{}),
		ended: table("ENDED", "jobs that ended without success", kv.Options{Most: maxEnded}),
		done: table("DONE", "jobs with an Idempotency-Key that are done",
			kv.Options{Most: maxEnded, Memory: true}),
	}
	js.Silence = natsconn.NewSilence(nc, o.Logger, b.probe)
	b.bounds = &bounds{js: js, names: names, replicas: o.Replicas, log: o.Logger,
		locks: b.tables.locks}
	b.apart = &apart{nc: nc, names: names, policies: b.tables.Policies}
	b.tally = newTally(js, names, o.Replicas, o.Logger)
	past, err := newHistories(nc, o.Domain, b.bounds)
	b.events = &Events{nc: nc, names: names, log: o.Logger, tally: b.tally, histories: past}
	return b, err
}

// Tables are the KV buckets that all policies share.
type Tables struct {
	Drainers   *kv.Table
	Admitters  *kv.Table // see [kv.Roster]
	Partitions *kv.Table // owners and clock checkpoints
	Attempts   *kv.Table // of jobs that failed at least once
	Policies   *kv.Table // see package internal/queue/store

	locks *kv.Table // held for seconds while streams change
	ended *kv.Table // unsuccessful jobs
	done  *kv.Table // completed jobs with an Idempotency-Key
}

func (t Tables) all() []*kv.Table {
	return []*kv.Table{t.Drainers, t.Partitions, t.Attempts, t.Policies, t.locks, t.Admitters,
		t.ended, t.done}
}

// Over returns a broker of the same installation over another connection.
func (b *Broker) Over(nc *nats.Conn) (*Broker, error) {
	return NewBroker(nc, Options{Prefix: b.names.Prefix(), Domain: b.domain,
		Replicas: b.replicas, Logger: b.log})
}

// Unanswered takes note that nobody has answered a question over this connection, where somebody
// should: if JetStream does not answer either, the connection moves to another server.
func (b *Broker) Unanswered() { b.js.Silence.Unanswered(time.Now()) }

// Conn is the connection to NATS.
func (b *Broker) Conn() *nats.Conn { return b.nc }

// Domain is the JetStream domain; may be empty.
func (b *Broker) Domain() string { return b.domain }

// Names are those of the installation.
func (b *Broker) Names() Names { return b.names }

// Tables are those of the installation.
func (b *Broker) Tables() Tables { return b.tables }

// Setup creates the KV buckets that all policies share. It is idempotent. It returns
// [job.ErrVersion] for a server older than [minServerVersion] or a newer layout, and [ErrApart].
func (b *Broker) Setup(ctx context.Context) error {
	version := b.nc.ConnectedServerVersion()
	if version == "" {
		return fmt.Errorf("set up JetStream: %w: not connected", ErrUnavailable)
	}
	if !atLeast(version, minServerVersion) {
		return fmt.Errorf("set up JetStream: %w: %s is nats-server %s, and Penstock needs %s or "+
			"newer", job.ErrVersion, b.nc.ConnectedUrlRedacted(), version, minServerVersion)
	}
	account, err := b.bounds.account(ctx)
	if err == nil && b.lister == nil { // which is of this process
		err = b.apart.check(ctx)
	}
	if err != nil {
		return fmt.Errorf("set up JetStream: %w", err)
	}
	bytes := share{scale: 1, most: account.Limits.StoreMaxStreamBytes}.bound(
		account.Limits.MaxStore / storeDenominator)
	for _, t := range b.tables.all() {
		if err := t.Ensure(ctx, b.replicas, bytes); err != nil {
			return err
		}
	}
	return b.apart.answer()
}

const metaPartitions = "penstock.partitions"

// atLeast compares versions such as "2.15.2-RC.1"; unreadable ones are older.
func atLeast(have, want string) bool {
	h, w := versionNumbers(have), versionNumbers(want)
	return slices.Compare(h[:], w[:]) >= 0
}

func versionNumbers(version string) (n [3]int) {
	if _, err := fmt.Sscanf(version, "%d.%d.%d", &n[0], &n[1], &n[2]); err != nil {
		return [3]int{}
	}
	return n
}
