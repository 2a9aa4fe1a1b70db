package jet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/base/errs"
	"github.com/penstock-mq/penstock/policy"
)

// The parts of a store of known size. An eighth is left for leases, owners, checkpoints and
// policies.
const (
	jobsNumerator    = 10 // sixteenths
	lettersNumerator = 2
	storeDenominator = 16 // one for each of two tables that evict

	// lettersAnyhow bounds a policy's letters in a store of unknown size.
	lettersAnyhow = 1 << 30
)

// A policy's own bounds in bytes, in its stream's metadata.
const (
	metaMaxBytes     = "penstock.max_bytes"
	metaDeadMaxBytes = "penstock.dead.max_bytes"
)

// Fill is the use of a bound, in bytes.
type Fill struct {
	Used int64
	Max  int64 // 0: not bounded
}

// High reports whether more than four fifths are used.
func (f Fill) High() bool { return f.Max > 0 && f.Used >= f.Max/5*4 }

// Storage is what JetStream has stored, and may store.
type Storage struct {
	// of the whole account
	Fill
	Jobs    map[string]Fill // by policy
	Letters map[string]Fill // by policy
	// Dead has the number of dead letters, by policy.
	Dead    map[string]uint64
	History map[string]Fill
	// Lacks names limits of the account that are too low for the policies.
	Lacks string
	// Copies is by content: jobs, dead_letters, history, or records for all others.
	Copies map[string]Copies
	// Made has the creation times of streams of records or jobs on disk, by name.
	Made map[string]time.Time
}

// Copies are the copies of streams in a cluster.
type Copies struct {
	Lacking int
	// copies of the incomplete stream with the fewest
	Current, Wanted int
}

const (
	// copySilence is the time that a silent server's copy still counts.
	copySilence = 10 * time.Second
	// copyLag is the largest number of writes that a copy may lag behind.
	copyLag = 1000
)

func current(stream *jetstream.StreamInfo) int {
	if stream.Cluster == nil {
		return 1
	}
	n := 0
	if stream.Cluster.Leader != "" {
		n++
	}
	for _, r := range stream.Cluster.Replicas {
		if !r.Offline && (r.Current || r.Active > 0 && r.Active < copySilence && r.Lag < copyLag) {
			n++
		}
	}
	return n
}

// Ration sets the bounds in bytes of every policy's streams: the policy's own, or, if the store's
// size is known, a share. Jobs and letters each have a part of the store, shared equally by
// policies without their own numbers, in powers of two, because then another policy usually changes
// no bound; numbers that do not fit are reduced. A stream above its bound keeps its jobs and
// refuses more. Call it before many policies' streams are created, with these, and periodically,
// because shares grow as streams drain. If only a bound could not be set, the result is valid.
func (b *Broker) Ration(ctx context.Context, coming ...policy.Policy) (Storage, error) {
	configs := make([]jetstream.StreamConfig, len(coming))
	var histories []string
	for i, p := range coming {
		configs[i] = b.streamConfig(p.WithDefaults())
		if p.ResultRetention > 0 {
			histories = append(histories, b.names.historyStream(p.Name))
		}
	}
	s, err := b.bounds.ration(ctx, configs, histories...)
	if err != nil {
		err = fmt.Errorf("share the store: %w", err)
	}
	for name := range s.Jobs {
		if jobs := b.Waiting()[name]; jobs > 0 {
			b.tally.Count(name, countDepth, int64(jobs))
		}
	}
	return s, err
}

// Replaced reports whether a stream is gone or was created at another time. Lists of streams omit
// streams of servers that are down.
func (b *Broker) Replaced(ctx context.Context, stream string, made time.Time) bool {
	info, err := b.js.StreamInfo(ctx, stream, "")
	return errors.Is(err, ErrNoStream) || err == nil && !info.Created.Equal(made)
}

// Waiting returns the number of jobs of each policy that had some at the last [Broker.Ration].
func (b *Broker) Waiting() map[string]uint64 {
	if found := b.bounds.surveyed.Load(); found != nil {
		return found.waiting
	}
	return nil
}

type bounded struct {
	policy string                // with historyInfix for a history
	stream *jetstream.StreamInfo // nil: to be created
	own    int64                 // the policy's bound; 0: none
	used   int64
	bound  int64 // the result; 0: none
}

// survey is the result of the last Ration, for streams created before the next.
type survey struct {
	began         time.Time
	jobs, letters share
	streams       *sync.Map // configuration by policy, as last seen
	waiting       map[string]uint64
	said          map[string]map[string]string // metadata by policy, also of streams to come
	storage       Storage
	reserved      bool // bounds count as used: streams are made with those of a new survey
}

func newSurvey() *survey {
	return &survey{began: time.Now(), jobs: share{scale: 1},
		letters: share{level: lettersAnyhow, scale: 1},
		streams: new(sync.Map), waiting: map[string]uint64{}, said: map[string]map[string]string{},
		storage: Storage{Jobs: map[string]Fill{}, Letters: map[string]Fill{},
			Dead: map[string]uint64{}, History: map[string]Fill{}, Copies: map[string]Copies{},
			Made: map[string]time.Time{}}}
}

func (s *survey) copied(group string, stream *jetstream.StreamInfo) {
	c := s.storage.Copies[group]
	if stream != nil && current(stream) < stream.Config.Replicas {
		if n := current(stream); c.Lacking == 0 || n < c.Current {
			c.Current, c.Wanted = n, stream.Config.Replicas
		}
		c.Lacking++
	}
	s.storage.Copies[group] = c
}

func (s *survey) bound(policy string, config jetstream.StreamConfig) int64 {
	switch {
	case config.MaxBytes > 0: // a history
		return s.letters.bound(config.MaxBytes)
	case config.Metadata[metaPartitions] != "":
		return s.jobs.bound(metaNumber(config.Metadata, metaMaxBytes))
	}
	return s.letters.bound(metaNumber(s.said[policy], metaDeadMaxBytes))
}

type share struct {
	level int64   // bound of each stream without its own, or 0
	scale float64 // factor of own numbers
	most  int64   // of a stream of this account; 0: no bound
}

// bound returns the bound for a stream's own number, or 0.
func (s share) bound(own int64) int64 {
	switch {
	case own == 0:
		own = s.level
	case s.scale < 1:
		own = max(1, rounded(int64(float64(own)*s.scale)))
	}
	if s.most > 0 {
		return min(cmp.Or(own, s.most), s.most)
	}
	return own
}

// ration is Ration including streams to be created and possible histories.
func (bs *bounds) ration(ctx context.Context, coming []jetstream.StreamConfig,
	histories ...string) (Storage, error) {
	account, err := bs.account(ctx)
	if err != nil {
		return Storage{}, err
	}
	size := account.Limits.MaxStore
	found := newSurvey()
	jobs, letters, foreign, err := bs.boundedStreams(ctx, found, coming)
	if err != nil {
		return Storage{}, err
	}
	s := &found.storage
	s.Fill = Fill{int64(account.Store), size}
	if size > 0 {
		free := max(1, size-foreign)
		found.jobs = divide(free/storeDenominator*jobsNumerator, jobs)
		found.letters = divide(free/storeDenominator*lettersNumerator, letters)
	}
	found.reserved = account.Limits.MaxBytesRequired
	found.jobs.most = account.Limits.StoreMaxStreamBytes
	found.letters.most = found.jobs.most
	for _, x := range jobs {
		x.bound = found.jobs.bound(x.own)
		s.Jobs[x.policy] = Fill{x.used, x.bound}
	}
	for _, x := range letters {
		x.bound = found.letters.bound(x.own)
		if name, history := strings.CutPrefix(x.policy, historyInfix); history {
			s.History[name] = Fill{x.used, x.bound}
		} else {
			s.Letters[x.policy] = Fill{x.used, x.bound}
			if x.stream != nil {
				s.Dead[x.policy] = x.stream.State.Msgs
			}
		}
	}
	s.Lacks = bs.lacks(account, found, jobs, letters, histories)
	bs.surveyed.Store(found)
	return *s, bs.rebound(ctx, append(jobs, letters...))
}

// lacks compares the account's limits with the policies' needs: a stream each for jobs, dead
// letters and history, a consumer per partition (counted by stream), and their bytes.
func (bs *bounds) lacks(account jetstream.Tier, found *survey, jobs, letters []*bounded,
	histories []string) string {
	var lacks []string
	lack := func(format string, args ...any) { lacks = append(lacks, fmt.Sprintf(format, args...)) }
	missing := map[string]bool{}
	for _, name := range histories {
		missing[name] = true
	}
	for _, x := range jobs {
		missing[bs.names.Stream(x.policy)], missing[bs.names.DeadStream(x.policy)] = true, true
	}
	var bytes int64
	scaled := false
	for _, x := range slices.Concat(jobs, letters) {
		if x.stream != nil {
			delete(missing, x.stream.Config.Name)
		}
		bytes += x.own
		scaled = scaled || x.bound < x.own && !strings.HasPrefix(x.policy, historyInfix)
	}
	limits, streams := account.Limits, account.Streams+len(missing)
	if limits.MaxStreams > 0 && streams > limits.MaxStreams {
		lack("max_streams is %d, and they may need %d", limits.MaxStreams, streams)
	}
	partitions := func(x *bounded) int64 { return metaNumber(found.said[x.policy], metaPartitions) }
	if limits.MaxConsumers > 0 && len(jobs) > 0 {
		widest := slices.MaxFunc(jobs, func(a, b *bounded) int {
			return cmp.Or(cmp.Compare(partitions(a), partitions(b)),
				cmp.Compare(b.policy, a.policy))
		})
		if n := partitions(widest); n > int64(limits.MaxConsumers) {
			lack("max_consumers is %d, and policy %s has %d partitions", limits.MaxConsumers,
				widest.policy, n)
		}
	}
	if scaled {
		lack("max_storage is %s for each replica, and max_bytes, dead.max_bytes and histories of "+
			"%s do not fit: they get less", policy.Size(limits.MaxStore),
			policy.Size(bytes))
	}
	return strings.Join(lacks, "; ")
}

// divide shares a part of the store. Own numbers come first, but leave each other policy a quarter
// of an equal share. While a stream is above its bound, others get less.
func divide(part int64, streams []*bounded) share {
	least := part / int64(4*max(1, len(streams)))
	var owned float64
	var sharing []*bounded
	for _, x := range streams {
		owned += float64(x.own)
		if x.own == 0 {
			sharing = append(sharing, x)
		}
	}
	s := share{scale: min(1, float64(part-least*int64(len(sharing)))/max(1, owned))}
	free := part
	for _, x := range streams {
		if x.own > 0 {
			free -= max(s.bound(x.own), x.used)
		}
	}
	slices.SortFunc(sharing, func(a, b *bounded) int { return cmp.Compare(b.used, a.used) })
	level := free
	for left := sharing; len(left) > 0; left = left[1:] {
		if level = free / int64(len(left)); left[0].used <= level {
			break
		}
		free -= left[0].used
	}
	s.level = rounded(max(level, least, 1))
	return s
}

// rounded returns the largest power of two up to n: few bounds change while streams drain and
// policies come and go.
func rounded(n int64) int64 {
	return 1 << (bits.Len64(uint64(n)) - 1)
}

// rebound updates changed bounds, the lower ones first to make room.
func (bs *bounds) rebound(ctx context.Context, streams []*bounded) error {
	problems := make([]error, len(streams))
	for _, lower := range []bool{true, false} {
		var doing sync.WaitGroup
		places := make(chan struct{}, 8) // streams at a time
		for i, x := range streams {
			want := cmp.Or(x.bound, -1)
			if x.stream == nil || x.stream.Config.MaxBytes == want ||
				lower != (max(x.stream.Config.MaxBytes, 0) > x.bound) {
				continue
			}
			places <- struct{}{}
			doing.Go(func() {
				defer func() { <-places }()
				problems[i] = bs.setBound(ctx, x.stream.Config.Name, want)
			})
		}
		doing.Wait()
	}
	return errors.Join(problems...)
}

// setBound sets a stream's bound in bytes (-1: unlimited), unless it is gone.
func (bs *bounds) setBound(ctx context.Context, stream string, bytes int64) (err error) {
	defer errs.Annotate(&err, "bound %s by %s", stream, policy.Size(bytes))
	lock := strings.TrimPrefix(stream, bs.names.upper+"_")
	return bs.locked(ctx, lock, func(ctx context.Context) error {
		info, err := bs.js.StreamInfo(ctx, stream, "")
		if err != nil {
			return unlessGone(err)
		}
		info.Config.MaxBytes = bytes
		return bs.js.UpdateStream(ctx, info.Config)
	})
}

// account returns the account's limits (0: unlimited) and use, in bytes per replica.
func (bs *bounds) account(ctx context.Context) (jetstream.Tier, error) {
	return bs.js.Account(ctx, bs.replicas)
}

// boundedStreams finds the streams of jobs and letters, including histories and coming ones, and
// the bytes of foreign streams.
func (bs *bounds) boundedStreams(ctx context.Context, found *survey,
	coming []jetstream.StreamConfig) (jobs, letters []*bounded, foreign int64, err error) {
	there := map[string]bool{}
	add := func(config jetstream.StreamConfig, x *bounded) {
		there[config.Name] = true
		name, ours := strings.CutPrefix(config.Name, bs.names.upper+"_")
		group := "records"
		switch letter, dead := strings.CutPrefix(name, deadInfix); {
		case ours && strings.HasPrefix(name, historyInfix):
			x.policy, group = name, "history"
			letters = append(letters, x)
		case ours && dead:
			x.policy, group = letter, "dead_letters"
			letters = append(letters, x)
		case ours && config.Metadata[metaPartitions] != "":
			x.policy, found.said[name], group = name, config.Metadata, "jobs"
			jobs = append(jobs, x)
			if x.stream != nil {
				found.streams.Store(name, config)
				if x.stream.State.Msgs > 0 {
					found.waiting[name] = x.stream.State.Msgs
				}
			}
		case !strings.HasPrefix(config.Name, "KV_"+bs.names.upper+"_"):
			if foreign += max(config.MaxBytes, x.used); !ours {
				return
			}
		}
		found.copied(group, x.stream)
		if x.stream != nil && config.Storage == jetstream.FileStorage &&
			(group == "jobs" || group == "records") {
			found.storage.Made[config.Name] = x.stream.Created
		}
	}
	err = bs.js.EachStream(ctx, "", func(info *jetstream.StreamInfo) {
		add(info.Config, &bounded{stream: info, used: int64(info.State.Bytes)})
	})
	if err != nil {
		return nil, nil, 0, err
	}
	for _, config := range coming {
		if !there[config.Name] {
			add(config, &bounded{})
		}
	}
	for _, x := range jobs {
		x.own = metaNumber(found.said[x.policy], metaMaxBytes)
	}
	for _, x := range letters {
		x.own = metaNumber(found.said[x.policy], metaDeadMaxBytes)
		if strings.HasPrefix(x.policy, historyInfix) {
			x.own = historyBytes
		}
	}
	return jobs, letters, foreign, nil
}

func metaNumber(metadata map[string]string, key string) int64 {
	n, _ := strconv.ParseInt(metadata[key], 10, 64)
	return n
}
