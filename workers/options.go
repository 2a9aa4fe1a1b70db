package workers

import (
	"context"
	"log/slog"
	"time"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/base/container"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
)

// LeastMemory is the minimum of [Options.Memory], in bytes.
const LeastMemory = 1 << 20

// DefaultMemory returns the default of [Options.Memory].
func DefaultMemory() int64 { return container.Share(512<<20, 4) }

// Options are the settings of a [Drainer]. The zero value works.
type Options struct {
	// Prefix is nats.prefix of the configuration; default "penstock".
	Prefix string
	// Domain is nats.domain of the configuration: of JetStream; default: the server's own.
	Domain string
	// Replicas is the number of servers that store the drainers' shared records: 1 (the default), 3
	// or 5. With WorkerOnly they stay as they are.
	Replicas int
	// Lease is the time that this process counts as alive after a renewal, and roughly the pause of
	// its partitions after a crash: default 5 s, or 15 s with replicas; at least 1 s.
	Lease time.Duration
	// Memory bounds the approximate memory of waiting jobs in bytes: default 512 MiB, or a quarter
	// of the memory of the container, of GOMEMLIMIT or of the machine if that is less. Once jobs
	// take half of it, each further one takes only 64 bytes and is read again before it starts.
	Memory int64
	// Slots bounds the jobs of all policies that run at once in this process; 0: only each policy's
	// workers do. While slots are scarce, the policies whose valves this drainer owns take turns by
	// their weights; jobs of other drainers' valves come in the order of their offers.
	Slots int
	// Policies lists the policies whose valves this drainer may own. Empty means all with workers
	// here or, with OwnAll, all.
	Policies []string
	// OwnAll permits owning valves of policies without local workers, whose jobs run in remote
	// workers.
	OwnAll bool
	// WorkerOnly makes a process that owns no valves and only runs jobs of other drainers; see
	// docs/workers-protocol.md.
	WorkerOnly bool
	// Codec decodes the jobs of registered handlers, and encodes the replies to encoded jobs.
	Codec job.Codec
	// Target returns the handler of a policy without a registered one, or a nil Handler. Nil: only
	// registered handlers run.
	Target func(policy.Entry) (Handler, error)
	// Grace is the time for running jobs to finish when the drainer stops; default 30 s.
	Grace time.Duration
	// Ready is called once, when the drainer holds its lease and takes part.
	Ready func()
	// Sink takes the drainer's events, as for metrics; may be nil.
	Sink queue.Sink
	// Attempt is called before each attempt in this process, as for traces. The handler gets the
	// returned context and job, and the returned function gets the attempt's error. Job.Header is
	// the stored header: clone it before changes.
	Attempt func(context.Context, Job) (context.Context, Job, func(error))
	// Lister is a broker of this process that calls [queue.Broker.Ration] periodically, if there
	// is one: the drainer need not list all streams, too.
	Lister *queue.Broker
	// Logger defaults to [slog.Default].
	Logger *slog.Logger
}

// LimitLeft is the number of units of a limit on starts available now, and its maximum.
type LimitLeft = api.LimitLeft
