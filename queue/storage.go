package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/internal/jsapi"
)

// The parts of a store whose size is known. What they leave, an eighth, is for the records without
// which nothing goes on: leases, owners, checkpoints, policies. Jobs and letters can never
// take it.
const (
	jobsNumerator    = 10 // of sixteenths
	lettersNumerator = 2
	storeDenominator = 16 // and one for each of the two tables whose oldest records may go

	// lettersAnyhow bounds a policy's letters where the size of the store is not known.
	lettersAnyhow = 1 << 30
)

// Metadata of a policy's stream: what the policy itself says of bounds, in bytes.
const (
	metaMaxBytes     = "penstock.max_bytes"
	metaDeadMaxBytes = "penstock.dead.max_bytes"
)

// Fill is how much of its bound something holds, in bytes.
type Fill struct {
	Used int64
	Max  int64 // 0: not bounded
}

// High reports whether at least four fifths are used.
func (f Fill) High() bool { return f.Max > 0 && f.Used >= f.Max/5*4 }

// Storage is what JetStream stores for an installation.
type Storage struct {
	// the whole account, by what JetStream lets it store; not bounded when there is no limit
	Fill
	Jobs    map[string]Fill // by policy
	Letters map[string]Fill // by policy
	History map[string]Fill // of those with keep_done
	// policies whose max_bytes, of jobs or of letters, do not fit the store and are obeyed in part
	Scaled []string
}

// Ration gives every policy's streams their bounds in bytes: what the policy says, or, where the
// store's size is known, a share of it. Jobs and letters have a part of the store each, which those
// policies share that have no number of their own; numbers that do not fit are cut down. Lowering a
// bound deletes no job: the stream takes nothing until it holds less. Call it whenever the policies
// change and from time to time: shares grow as a stream that held more than its own drains.
func (b *Broker) Ration(ctx context.Context) (Storage, error) {
	s, err := b.ration(ctx, "", nil)
	if err != nil {
		return Storage{}, fmt.Errorf("share the store: %w", err)
	}
	return s, nil
}

// bounded is one policy in the sharing of a part of the store.
type bounded struct {
	policy string                // of a history with historyInfix
	stream *jetstream.StreamInfo // nil: not there yet
	own    int64                 // bytes that the policy says; 0: none
	used   int64
	bound  int64 // the result; 0: none
}

// ration is Ration with another stream that is about to be created, the one of a policy's jobs or
// letters: its bound is found in the Storage, and there is room for it.
func (b *Broker) ration(ctx context.Context, coming string,
	meta map[string]string) (Storage, error) {
	look, cancel := context.WithTimeout(ctx, jsapi.CallTimeout)
	defer cancel()
	size, used, err := b.storeSize(look)
	if err != nil {
		return Storage{}, err
	}
	jobs, letters, foreign, err := b.boundedStreams(look, coming, meta)
	if err != nil {
		return Storage{}, err
	}
	s := Storage{Fill: Fill{used, size}, Jobs: map[string]Fill{}, Letters: map[string]Fill{},
		History: map[string]Fill{}}
	free := size
	if size > 0 {
		free = max(1, size-foreign)
	}
	for _, part := range []struct {
		streams   []*bounded
		numerator int64
		anyhow    int64
		into      map[string]Fill
	}{
		{jobs, jobsNumerator, 0, s.Jobs},
		{letters, lettersNumerator, lettersAnyhow, s.Letters},
	} {
		if size > 0 {
			divide(free/storeDenominator*part.numerator, part.streams)
		}
		for _, x := range part.streams {
			if size == 0 {
				x.bound = cmp.Or(x.own, part.anyhow)
			}
			if name, history := strings.CutPrefix(x.policy, historyInfix); history {
				s.History[name] = Fill{x.used, x.bound}
				continue
			}
			if x.bound < x.own && !slices.Contains(s.Scaled, x.policy) {
				s.Scaled = append(s.Scaled, x.policy)
			}
			part.into[x.policy] = Fill{x.used, x.bound}
		}
	}
	return s, b.rebound(ctx, append(jobs, letters...))
}

// divide shares a part of the store. Own numbers come first, but leave every other policy a quarter
// of an equal share. A stream that holds more than it should keeps its jobs, so the others get less
// until it has drained.
func divide(part int64, streams []*bounded) {
	if len(streams) == 0 {
		return
	}
	least := part / int64(4*len(streams))
	var owned float64
	var sharing []*bounded
	for _, x := range streams {
		owned += float64(x.own)
		if x.own == 0 {
			sharing = append(sharing, x)
		}
	}
	scale := min(1, float64(part-least*int64(len(sharing)))/max(1, owned))
	free := part
	for _, x := range streams {
		if x.own > 0 {
			if x.bound = x.own; scale < 1 {
				x.bound = max(1, rounded(int64(float64(x.own)*scale)))
			}
			free -= max(x.bound, x.used)
		}
	}
	slices.SortFunc(sharing, func(a, b *bounded) int { return cmp.Compare(b.used, a.used) })
	level := int64(0)
	for left := sharing; len(left) > 0; left = left[1:] {
		if level = free / int64(len(left)); left[0].used <= level {
			break
		}
		free -= left[0].used
	}
	level = rounded(max(level, least, 1))
	for _, x := range sharing {
		x.bound = level
	}
}

// rounded leaves a number its first five binary digits. Of bounds that are rounded few must be
// updated while a stream drains, policies come and go, or others' streams in the account grow.
func rounded(n int64) int64 {
	return n &^ (1<<max(0, bits.Len64(uint64(n))-5) - 1)
}

// rebound updates what has another bound: first those that get less, or there would be no room for
// those that get more.
func (b *Broker) rebound(ctx context.Context, streams []*bounded) error {
	var problems []error
	for _, lower := range []bool{true, false} {
		for _, x := range streams {
			want := cmp.Or(x.bound, -1)
			if x.stream == nil || x.stream.Config.MaxBytes == want ||
				lower != (max(x.stream.Config.MaxBytes, 0) > x.bound) {
				continue
			}
			lock := strings.TrimPrefix(x.stream.Config.Name, b.names.upper+"_")
			err := b.locked(ctx, lock, func(ctx context.Context) error {
				info, err := b.js.StreamInfo(ctx, x.stream.Config.Name, "")
				if jsapi.HasCode(err, jsapi.CodeStreamNotFound) {
					return nil
				}
				if err != nil {
					return jsapi.Translate(err)
				}
				info.Config.MaxBytes = want
				return b.updateStream(ctx, info.Config)
			})
			if err != nil {
				problems = append(problems,
					fmt.Errorf("bound %s by %s: %w", x.stream.Config.Name, policy.Size(want), err))
			}
		}
	}
	return errors.Join(problems...)
}

// storeSize asks how many bytes the account may store for one replica of each stream, and stores;
// size 0 is no limit.
func (b *Broker) storeSize(ctx context.Context) (size, used int64, err error) {
	info, err := b.js.AccountInfo(ctx)
	if err != nil {
		return 0, 0, jsapi.Translate(err)
	}
	if tier, found := info.Tiers["R"+strconv.Itoa(b.replicas)]; found {
		return max(0, tier.Limits.MaxStore), int64(tier.Store), nil
	}
	n := int64(b.replicas)
	return max(0, info.Limits.MaxStore) / n, int64(info.Store) / n, nil
}

// boundedStreams finds the streams of jobs and of letters, histories among these, and how many
// bytes of the store are somebody else's.
func (b *Broker) boundedStreams(ctx context.Context, coming string, meta map[string]string) (
	jobs, letters []*bounded, foreign int64, err error) {

	own := map[string]map[string]string{} // metadata of the streams of jobs, by policy
	list := b.js.ListStreams(ctx)
	for info := range list.Info() {
		name, ours := strings.CutPrefix(info.Config.Name, b.names.upper+"_")
		x := &bounded{stream: info, used: int64(info.State.Bytes)}
		switch letter, dead := strings.CutPrefix(name, deadInfix); {
		case ours && strings.HasPrefix(name, historyInfix):
			x.policy = name
			letters = append(letters, x)
		case ours && dead:
			x.policy = letter
			letters = append(letters, x)
		case ours && info.Config.Metadata[metaPartitions] != "":
			x.policy, own[name] = name, info.Config.Metadata
			jobs = append(jobs, x)
		case !strings.HasPrefix(info.Config.Name, "KV_"+b.names.upper+"_"):
			foreign += max(info.Config.MaxBytes, x.used)
		}
	}
	if err := list.Err(); err != nil {
		return nil, nil, 0, jsapi.Translate(err)
	}
	if name, dead := strings.CutPrefix(coming, deadInfix); dead {
		letters = append(letters, &bounded{policy: name})
	} else if strings.HasPrefix(coming, historyInfix) {
		letters = append(letters, &bounded{policy: coming})
	} else if coming != "" {
		own[coming] = meta
		jobs = append(jobs, &bounded{policy: coming})
	}
	for _, x := range jobs {
		x.own = metaBytes(own[x.policy], metaMaxBytes)
	}
	for _, x := range letters {
		x.own = metaBytes(own[x.policy], metaDeadMaxBytes)
		if strings.HasPrefix(x.policy, historyInfix) {
			x.own = historyBytes
		}
	}
	return jobs, letters, foreign, nil
}

// metaBytes reads a number of bytes that a policy says; 0 when it says none.
func metaBytes(metadata map[string]string, key string) int64 {
	n, err := strconv.ParseInt(metadata[key], 10, 64)
	if err != nil {
		return 0
	}
	return n
}
