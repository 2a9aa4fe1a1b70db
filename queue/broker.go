// Package queue is Penstock's layout on NATS JetStream: how keys become subjects, which streams,
// consumers and KV buckets exist, and how jobs get in (Producer), wait (Backlog) and leave (Done,
// Bury). It decides nothing about rates.
//
// A policy with a queue has one stream. Anyone publishes to penstock.jobs.<policy>.<key>; the
// server adds the partition and stores under penstock.queue.<policy>.<partition>.<key>, at most
// capacity messages per subject: the law that a bucket never holds more is JetStream's to keep,
// whichever client publishes. A partition's owner reads it through one consumer per epoch and
// acknowledges a job when it is finished; until then JetStream keeps it.
package queue

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/installation"
	"github.com/penstock-mq/penstock/queue/internal/jsapi"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/queue/kv"
)

// MinServerVersion is the oldest nats-server that has everything the layout needs.
const MinServerVersion = "2.14.0"

// maxAttempts bounds the records of attempts, some 60 MB. A job whose record went counts its
// attempts from zero after the next takeover; that is better than leases that find no room.
const maxAttempts = 200_000

// Options configure a [Broker]. The zero value works.
type Options struct {
	// Prefix of all names; see [NewNames]. Default [DefaultPrefix].
	Prefix string
	// Replicas of streams and KV buckets: 1 (default), 3 or 5.
	Replicas int
	// Logger gets warnings about records that cannot be understood and watches that had to begin
	// again. Default [slog.Default].
	Logger *slog.Logger
}

// Broker is the way to one installation's jobs, policies and records over one NATS connection. It
// is safe for concurrent use, owns no goroutine but one while it serves partitions, and does not
// close the connection.
type Broker struct {
	nc       *nats.Conn
	js       *jsapi.Conn
	names    Names
	replicas int
	log      *slog.Logger

	tables  Tables
	shared  switchboard // of what many partitions subscribe to
	resting resting

	events    events
	chronicle chronicle
	minutes   minutes

	discarding sync.Map // by policy, a channel of one place, held to discard dead letters

	surveyed atomic.Pointer[survey] // nil: the store was not shared out yet
	refusal  atomic.Pointer[error]  // why nothing can be stored now: see Refuse
}

// Refuse makes every Publish fail at once with [ErrStorage] and the given reason, when it is known
// that JetStream cannot write, which it does not say but by its silence. Nil ends that.
func (b *Broker) Refuse(reason error) {
	if reason == nil {
		b.refusal.Store(nil)
		return
	}
	reason = fmt.Errorf("%w: %w", ErrStorage, reason)
	b.refusal.Store(&reason)
}

// NewBroker makes a broker over nc and does no I/O. The connection should retry for ever
// (nats.MaxReconnects(-1)) and ping every few seconds. It returns an error for a prefix or a number
// of replicas that cannot be.
func NewBroker(nc *nats.Conn, o Options) (*Broker, error) {
	names, err := NewNames(o.Prefix)
	if err != nil {
		return nil, err
	}
	if o.Replicas == 0 {
		o.Replicas = 1
	}
	if err := installation.CheckReplicas(o.Replicas); err != nil {
		return nil, fmt.Errorf("replicas: %w", err)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	js, err := jsapi.New(nc)
	if err != nil {
		return nil, err
	}
	b := &Broker{nc: nc, js: js, names: names, replicas: o.Replicas, log: o.Logger,
		shared: switchboard{nc: nc}}
	table := func(name, holds string, o kv.Options) *kv.Table {
		o.Description = "Penstock: " + holds
		return kv.New(js, names.bucket(name), o, b.log)
	}
	b.tables = Tables{
		Drainers:   table("DRAINERS", "leases of drainers", kv.Options{}),
		Admitters:  table("ADMITTERS", "leases of admitters", kv.Options{}),
		Partitions: table("PARTITIONS", "owners and checkpoints of partitions", kv.Options{}),
		Attempts:   table("ATTEMPTS", "failed attempts of jobs", kv.Options{Most: maxAttempts}),
		Policies:   table("POLICIES", "policies, and limits of single keys", kv.Options{}),
		locks:      table("LOCKS", "locks of processes that change streams", kv.Options{}),
		ended:      table("ENDED", "jobs that ended without success", kv.Options{Most: maxEnded}),
		done: table("DONE", "jobs with an Idempotency-Key that are done",
			kv.Options{Most: maxEnded, Memory: true}),
	}
	return b, nil
}

// Tables are the records of an installation.
type Tables struct {
	Drainers   *kv.Table // the leases of drainers, one each
	Admitters  *kv.Table // the leases of admitters: see [kv.Roster]
	Partitions *kv.Table // the owner of each partition, and the checkpoints of its clocks
	Attempts   *kv.Table // of jobs that failed at least once
	Policies   *kv.Table // and their overrides: see package policy/store

	locks *kv.Table // held for seconds by the process that changes a policy's streams
	ended *kv.Table // how jobs ended that did not succeed
	done  *kv.Table // jobs with an Idempotency-Key that did
}

func (t Tables) all() []*kv.Table {
	return []*kv.Table{t.Drainers, t.Partitions, t.Attempts, t.Policies, t.locks, t.Admitters,
		t.ended, t.done}
}

// Conn is the connection that the broker was made over.
func (b *Broker) Conn() *nats.Conn { return b.nc }

// Names spells this installation's subjects, streams and buckets.
func (b *Broker) Names() Names { return b.names }

// Tables are the installation's records.
func (b *Broker) Tables() Tables { return b.tables }

// Setup creates what all policies share: the KV buckets. Any number of processes may call it at
// once and again; it changes nothing that is as it should be. It returns [job.ErrVersion] for a
// server older than [MinServerVersion] or a layout written by a newer Penstock.
func (b *Broker) Setup(ctx context.Context) error {
	version := b.nc.ConnectedServerVersion()
	if version == "" {
		return fmt.Errorf("set up JetStream: %w: not connected", ErrUnavailable)
	}
	if !atLeast(version, MinServerVersion) {
		return fmt.Errorf(
			"set up JetStream: %w: %s is nats-server %s, and Penstock needs %s or newer",
			job.ErrVersion,
			b.nc.ConnectedUrlRedacted(), version, MinServerVersion)
	}
	account, err := b.account(ctx)
	if err != nil {
		return fmt.Errorf("set up JetStream: %w", err)
	}
	for _, t := range b.tables.all() {
		if err := t.Ensure(ctx, b.replicas, account.Limits.MaxStore/storeDenominator); err != nil {
			return err
		}
	}
	if err := b.splitLetters(ctx); err != nil {
		return fmt.Errorf("set up dead letters: %w", err)
	}
	return nil
}

// metaPartitions is the key of a stream's metadata that holds the policy's number of partitions.
const metaPartitions = "penstock.partitions"

// atLeast compares versions such as "2.14.0" or "2.15.2-RC.1"; what it cannot read is older.
func atLeast(have, want string) bool {
	h, w := versionNumbers(have), versionNumbers(want)
	for i := range h {
		if h[i] != w[i] {
			return h[i] > w[i]
		}
	}
	return true
}

func versionNumbers(version string) (numbers [3]int) {
	version, _, _ = strings.Cut(version, "-")
	for i, part := range strings.SplitN(version, ".", 3) {
		n, err := strconv.Atoi(part)
		if err != nil {
			return [3]int{}
		}
		numbers[i] = n
	}
	return numbers
}
