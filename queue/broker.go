// Package queue is Penstock's layout on NATS JetStream: how keys become subjects, which streams, consumers and KV buckets
// exist, and how jobs get in (Producer), wait (Backlog) and leave (Done, Bury). It decides nothing about rates.
//
// A policy with a queue has one stream. Anyone publishes to penstock.jobs.<policy>.<key>; the server adds the partition
// and stores under penstock.queue.<policy>.<partition>.<key>, at most capacity messages per subject: the law that a bucket
// never holds more is JetStream's to keep, whoever publishes. A partition's owner reads it through one consumer per epoch
// and acknowledges a job when it is finished; until then JetStream keeps it.
package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// MinServerVersion is the oldest nats-server that has everything the layout needs.
const MinServerVersion = "2.14.0"

// formatVersion is the version of everything this package stores: stream layout, policy records, messages to valves.
const formatVersion = 1

// callTimeout bounds every JetStream call that has no shorter deadline.
const callTimeout = 2 * time.Second

// Options configure a [Broker]. The zero value works.
type Options struct {
	// Prefix of all names; see [NewNames]. Default [DefaultPrefix].
	Prefix string
	// Replicas of streams and KV buckets: 1 (default), 3 or 5.
	Replicas int
	// Logger gets warnings about records that cannot be understood and watches that had to begin again. Nil: none.
	Logger *slog.Logger
}

// Broker is the way to one installation's jobs, policies and records over one NATS connection. It is safe for concurrent
// use, owns no goroutine, and does not close the connection.
type Broker struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	names    Names
	replicas int
	log      *slog.Logger

	drainers, partitions, attempts, policies, locks, admitters, ended, done *Table

	events events

	discarding sync.Map // by policy, a channel that holds whoever discards dead letters

	refusal atomic.Pointer[error] // why nothing can be stored now, as was said from outside
}

// Refuse makes every Publish fail at once with [ErrStorage] and the given reason, when it is known that JetStream cannot
// write, which it does not say but by its silence. Nil ends that.
func (b *Broker) Refuse(reason error) {
	if reason == nil {
		b.refusal.Store(nil)
		return
	}
	reason = fmt.Errorf("%w: %w", ErrStorage, reason)
	b.refusal.Store(&reason)
}

// NewBroker makes a broker over nc and does no I/O. The connection should retry for ever (nats.MaxReconnects(-1)) and ping
// every few seconds. It answers an error for a prefix or a number of replicas that cannot be.
func NewBroker(nc *nats.Conn, o Options) (*Broker, error) {
	names, err := NewNames(o.Prefix)
	if err != nil {
		return nil, err
	}
	if o.Replicas == 0 {
		o.Replicas = 1
	}
	if o.Replicas < 1 || o.Replicas > 5 {
		return nil, fmt.Errorf("replicas %d: want 1, 3 or 5", o.Replicas)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	b := &Broker{nc: nc, js: js, names: names, replicas: o.Replicas, log: o.Logger}
	b.drainers = newTable(b, names.DrainersBucket())
	b.partitions = newTable(b, names.PartitionsBucket())
	b.attempts = newTable(b, names.AttemptsBucket())
	b.policies = newTable(b, names.PoliciesBucket())
	b.locks = newTable(b, names.LocksBucket())
	b.admitters = newTable(b, names.AdmittersBucket())
	b.ended = newTable(b, names.EndedBucket())
	b.done = newTable(b, names.DoneBucket())
	b.attempts.most, b.ended.most, b.done.most, b.done.memory = maxAttempts, maxEnded, maxEnded, true
	return b, nil
}

// Conn is the connection that the broker was made over.
func (b *Broker) Conn() *nats.Conn { return b.nc }

// Names spells this installation's subjects, streams and buckets.
func (b *Broker) Names() Names { return b.names }

// Drainers are the leases of drainer processes, one record each.
func (b *Broker) Drainers() *Table { return b.drainers }

// Partitions are the records of who owns a partition, and the checkpoints of its clocks.
func (b *Broker) Partitions() *Table { return b.partitions }

// Attempts are the records of jobs that failed at least once.
func (b *Broker) Attempts() *Table { return b.attempts }

// Setup creates what all policies share: the KV buckets. Any number of processes may call
// it at once and again; it changes nothing that is as it should be. It answers [ErrVersion] for a server older than
// [MinServerVersion] or a layout written by a newer Penstock.
func (b *Broker) Setup(ctx context.Context) error {
	version := b.nc.ConnectedServerVersion()
	if version == "" {
		return fmt.Errorf("set up JetStream: %w: not connected", ErrUnavailable)
	}
	if !atLeast(version, MinServerVersion) {
		return fmt.Errorf("set up JetStream: %w: %s is nats-server %s, and Penstock needs %s or newer", ErrVersion,
			b.nc.ConnectedUrlRedacted(), version, MinServerVersion)
	}
	size, _, err := b.storeSize(ctx)
	if err != nil {
		return fmt.Errorf("set up JetStream: %w", err)
	}
	for _, t := range []*Table{b.drainers, b.partitions, b.attempts, b.policies, b.locks, b.admitters, b.ended, b.done} {
		if err := b.ensureStream(ctx, t.config(b.replicas, size)); err != nil {
			return fmt.Errorf("set up KV bucket %s: %w", t.bucket, err)
		}
	}
	if err := b.splitLetters(ctx); err != nil {
		return fmt.Errorf("set up dead letters: %w", err)
	}
	return nil
}

// metaVersion and its siblings are keys of a stream's metadata.
const (
	metaVersion    = "penstock.v"
	metaPartitions = "penstock.partitions"
)

// ensureStream creates a stream whose settings never change but for its replicas and its bound, or checks that it is there.
// Its sequences, which are the revisions of a table, begin with the time in µs: should the stream be lost and made anew, they
// go on above all former ones, for nobody writes a million times a second, so that whoever compares them need not know.
func (b *Broker) ensureStream(ctx context.Context, want jetstream.StreamConfig) error {
	want.Metadata = map[string]string{metaVersion: strconv.Itoa(formatVersion)}
	info, err := b.streamInfo(ctx, want.Name, "")
	if hasCode(err, codeStreamNotFound) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		want.FirstSeq = uint64(time.Now().UnixMicro())
		if _, err = b.js.CreateStream(ctx, want); !hasCode(err, codeNameInUse) {
			return translate(err)
		}
		info, err = b.streamInfo(ctx, want.Name, "") // another process was faster
	}
	if err != nil {
		return translate(err)
	}
	if err := checkVersion(info.Config.Metadata); err != nil {
		return err
	}
	have := &info.Config
	if have.Replicas == want.Replicas && have.MaxMsgs == want.MaxMsgs && have.MaxBytes == want.MaxBytes &&
		have.Discard == want.Discard {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	have.Replicas, have.MaxMsgs, have.MaxBytes, have.Discard = want.Replicas, want.MaxMsgs, want.MaxBytes, want.Discard
	_, err = b.js.UpdateStream(ctx, *have)
	return translate(err)
}

// checkVersion refuses what a newer Penstock has made. No version at all is somebody else's stream.
func checkVersion(metadata map[string]string) error {
	if v := metadata[metaVersion]; v != strconv.Itoa(formatVersion) {
		return fmt.Errorf("%w: format version %q, want %d", ErrVersion, v, formatVersion)
	}
	return nil
}

// streamInfo asks for a stream's settings and state, and with a filter also for the messages per subject. Errors are
// JetStream's own: translate them.
func (b *Broker) streamInfo(ctx context.Context, stream, filter string) (*jetstream.StreamInfo, error) {
	type request struct {
		Filter string `json:"subjects_filter,omitempty"`
		Offset int    `json:"offset,omitempty"`
	}
	type response struct {
		jetstream.StreamInfo
		Total int `json:"total"`
	}
	var all *jetstream.StreamInfo
	for offset := 0; ; {
		var page response
		if err := b.call(ctx, "$JS.API.STREAM.INFO."+stream, request{filter, offset}, &page); err != nil {
			return nil, err
		}
		if all == nil {
			all = &page.StreamInfo
		} else {
			for subject, n := range page.State.Subjects {
				all.State.Subjects[subject] = n
			}
		}
		offset += len(page.State.Subjects)
		if len(page.State.Subjects) == 0 || offset >= page.Total {
			return all, nil
		}
	}
}

// call makes one JetStream API request with a deadline of its own. A refusal is an *apiError.
func (b *Broker) call(ctx context.Context, subject string, request, response any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	m, err := b.nc.RequestWithContext(ctx, subject, body)
	if err != nil {
		return err
	}
	var refusal struct {
		Error *apiError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &refusal); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if refusal.Error != nil {
		return refusal.Error
	}
	if err := json.Unmarshal(m.Data, response); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	return nil
}

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
