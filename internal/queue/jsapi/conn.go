// Package jsapi wraps JetStream's API: requests with deadlines, kinds of errors, reads from a
// stream's leader, and pulls that detect missing messages.
package jsapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/server/natsconn"
)

type Conn struct {
	jetstream.JetStream
	NATS *nats.Conn
	// Timeout bounds every call: the connection's, 2 s by default.
	Timeout time.Duration
	// Silence is told the outcomes of calls; may be nil.
	Silence *natsconn.Silence
	// Joins keeps Ensure from changing streams that are there.
	Joins  bool
	domain string
}

// Open opens the JetStream of a domain; empty: of the server that the connection reaches.
func Open(nc *nats.Conn, domain string, o ...jetstream.JetStreamOpt) (jetstream.JetStream, error) {
	js, err := jetstream.New(nc, o...)
	if domain != "" {
		js, err = jetstream.NewWithDomain(nc, domain, o...)
	}
	if err != nil {
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	return js, nil
}

func New(nc *nats.Conn, domain string) (*Conn, error) {
	js, err := Open(nc, domain)
	if err != nil {
		return nil, err
	}
	return &Conn{JetStream: js, NATS: nc, domain: domain,
		Timeout: cmp.Or(max(0, nc.Opts.Timeout), nats.DefaultTimeout)}, nil
}

const MetaVersion = "penstock.v"

// Layout is the version of the stored formats. Release 0.1 freezes them; builds before it wrote
// "1".
const Layout = "0.1"

// Metadata of a restored stream, in Unix nanoseconds.
const (
	// MetaCreated is when the stream was first created; JetStream reports the restore.
	MetaCreated = "penstock.created"
	// MetaRestored lists the restores. Jobs stored later reuse sequences.
	MetaRestored = "penstock.restored"
)

func Instants(metadata map[string]string, key string) []time.Time {
	var found []time.Time
	for word := range strings.FieldsSeq(metadata[key]) {
		if at, err := strconv.ParseInt(word, 10, 64); err == nil {
			found = append(found, time.Unix(0, at))
		}
	}
	return found
}

const createTries = 10

// leastPatience is how long a call waits at least before its lack of an answer tells anything.
const leastPatience = time.Second

// Heard tells [Silence] the outcome of a call. Only what is stored needs a majority of the servers:
// their leader alone answers reads, and refuses writes.
func (c *Conn) Heard(sent time.Time, store bool, err error) {
	switch {
	case errors.Is(err, nats.ErrNoResponders), HasCode(err, codeNotAvailable),
		(errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout)) &&
			time.Since(sent) >= leastPatience:
		c.Silence.Unanswered(sent)
	case store && err == nil:
		c.Silence.Answered()
	}
}

func within[T any](ctx context.Context, c *Conn, store bool,
	call func(context.Context) (T, error)) (T, error) {
	sent := time.Now()
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	result, err := call(ctx)
	c.Heard(sent, store, err)
	return result, Translate(err)
}

func (c *Conn) CreateStream(ctx context.Context, config jetstream.StreamConfig) error {
	return c.bounded(ctx, config, c.JetStream.CreateStream)
}

func (c *Conn) UpdateStream(ctx context.Context, config jetstream.StreamConfig) error {
	return c.bounded(ctx, config, c.JetStream.UpdateStream)
}

func (c *Conn) DeleteStream(ctx context.Context, name string) error {
	err := c.Call(ctx, "$JS.API.STREAM.DELETE."+name, struct{}{}, new(struct{}))
	if errors.Is(err, ErrNoStream) {
		return nil
	}
	return err
}

func (c *Conn) CreateConsumer(ctx context.Context, stream string,
	config jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	return within(ctx, c, false, func(ctx context.Context) (jetstream.Consumer, error) {
		return c.JetStream.CreateConsumer(ctx, stream, config)
	})
}

func (c *Conn) DeleteConsumer(ctx context.Context, stream, name string) error {
	err := c.Call(ctx, "$JS.API.CONSUMER.DELETE."+stream+"."+name, struct{}{}, new(struct{}))
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

func (c *Conn) Publish(ctx context.Context, m *nats.Msg) (PubAck, error) {
	return within(ctx, c, true, func(ctx context.Context) (PubAck, error) {
		answer, err := c.NATS.RequestMsgWithContext(ctx, m)
		if err != nil {
			return PubAck{}, err
		}
		return ParsePubAck(answer.Data)
	})
}

func Pause(ctx context.Context, pause time.Duration) error {
	select {
	case <-time.After(pause):
		return nil
	case <-ctx.Done():
		return Translate(ctx.Err())
	}
}

// Ensure creates a stream, or updates its replicas and bounds. Its sequences, a table's revisions,
// begin at the time in µs. A recreated stream's exceed all former ones, because writes stay below a
// million a second.
func (c *Conn) Ensure(ctx context.Context, want jetstream.StreamConfig) error {
	want.Metadata = map[string]string{MetaVersion: Layout}
	info, err := c.StreamInfo(ctx, want.Name, "")
	for tries := 1; errors.Is(err, ErrNoStream); tries++ {
		want.FirstSeq = uint64(time.Now().UnixMicro())
		// Another process may create it first.
		created := c.CreateStream(ctx, want)
		if tries == createTries ||
			!HasCode(created, jetstream.JSErrCodeStreamNameInUse, codeNotCreated) {
			return created
		}
		info, err = c.StreamInfo(ctx, want.Name, "")
	}
	if err != nil {
		return err
	}
	if err := CheckVersion(info.Config.Metadata); err != nil {
		return err
	}
	have := &info.Config
	if c.Joins || have.Replicas == want.Replicas && have.MaxMsgs == want.MaxMsgs &&
		have.MaxBytes == want.MaxBytes && have.Discard == want.Discard {
		return nil
	}
	have.Replicas, have.MaxMsgs, have.MaxBytes, have.Discard = want.Replicas, want.MaxMsgs,
		want.MaxBytes, want.Discard
	return c.UpdateStream(ctx, *have)
}

// CheckVersion refuses a stream of another layout, or a foreign one.
func CheckVersion(metadata map[string]string) error {
	if v := metadata[MetaVersion]; v != Layout {
		return fmt.Errorf("%w: the store has layout %q, and this build reads %q: "+
			"use an empty store, or another nats.prefix", job.ErrVersion, v, Layout)
	}
	return nil
}

func created(info *jetstream.StreamInfo) time.Time {
	if at := Instants(info.Config.Metadata, MetaCreated); len(at) > 0 {
		return at[0]
	}
	return info.Created
}

// EachStream calls found for every stream with a matching subject ("": all). nats.go's list uses a
// channel, which costs two goroutine switches per stream.
func (c *Conn) EachStream(ctx context.Context, subject string,
	found func(*jetstream.StreamInfo)) error {
	// There may be tens of thousands, and servers wait for others that are down.
	within := 10 * c.Timeout
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return pages(func(offset int) (n, total int, err error) {
		var page struct {
			Total   int
			Streams []*jetstream.StreamInfo
		}
		request := map[string]any{"offset": offset}
		if subject != "" {
			request["subject"] = subject
		}
		err = c.CallWithin(ctx, within, "$JS.API.STREAM.LIST", request, &page)
		for _, info := range page.Streams {
			info.Created = created(info)
			found(info)
		}
		return len(page.Streams), page.Total, err
	})
}

// pages reads the pages of a list, each from an offset.
func pages(read func(offset int) (n, total int, err error)) error {
	for offset := 0; ; {
		n, total, err := read(offset)
		if offset += n; err != nil || n == 0 || offset >= total {
			return err
		}
	}
}

// Names lists the names of streams, or of a stream's consumers.
func (c *Conn) Names(ctx context.Context, list string) (all []string, err error) {
	err = pages(func(offset int) (n, total int, err error) {
		var page struct {
			Total              int
			Streams, Consumers []string
		}
		err = c.Call(ctx, list, map[string]int{"offset": offset}, &page)
		found := append(page.Streams, page.Consumers...)
		all = append(all, found...)
		return len(found), page.Total, err
	})
	return all, err
}

// StreamInfo returns a stream's settings and state, and with a filter the messages per subject.
func (c *Conn) StreamInfo(ctx context.Context, stream,
	filter string) (*jetstream.StreamInfo, error) {
	type request struct {
		Filter string `json:"subjects_filter,omitempty"`
		Offset int    `json:"offset,omitempty"`
	}
	var all *jetstream.StreamInfo
	err := pages(func(offset int) (n, total int, err error) {
		var page struct {
			jetstream.StreamInfo
			Total int `json:"total"`
		}
		err = c.Call(ctx, "$JS.API.STREAM.INFO."+stream, request{filter, offset}, &page)
		if all == nil {
			all = &page.StreamInfo
			all.Created = created(all)
		} else {
			maps.Copy(all.State.Subjects, page.State.Subjects)
		}
		return len(page.State.Subjects), page.Total, err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

func (c *Conn) Call(ctx context.Context, subject string, request, response any) error {
	return c.CallWithin(ctx, c.Timeout, subject, request, response)
}

func (c *Conn) CallWithin(ctx context.Context, within time.Duration, subject string, request,
	response any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	sent := time.Now()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	m, err := c.NATS.RequestWithContext(ctx, c.API(subject), body)
	if err == nil {
		err = Answered(m.Data, response)
	}
	c.Heard(sent, false, err)
	return Translate(err)
}

func Answered(answer []byte, response any) error {
	if bytes.Contains(answer, []byte(`"error"`)) { // parsing a long list twice is slow
		var refusal struct {
			Error *Refusal `json:"error"`
		}
		if err := json.Unmarshal(answer, &refusal); err != nil {
			return fmt.Errorf("read answer: %w", err)
		}
		if refusal.Error != nil {
			return refusal.Error
		}
	}
	if err := json.Unmarshal(answer, response); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	return nil
}

func NewID() string { return nuid.Next() }

const (
	// otherStreams is the part of the store that each stream without a bound of its own gets in an
	// account that requires bounds: nine share an eighth, besides policies' and tables that evict.
	otherStreams = 72
	// assumedStore is for an account that requires bounds, and has none itself.
	assumedStore = 1 << 30
)

const apiPrefix = "$JS.API"

// API returns a subject below $JS.API in the connection's JetStream domain.
func (c *Conn) API(subject string) string {
	if c.domain == "" {
		return subject
	}
	return "$JS." + c.domain + ".API" + strings.TrimPrefix(subject, apiPrefix)
}

// KV returns the subject of writes to a KV bucket: leaf nodes pass $KV only below a domain's API.
func (c *Conn) KV(subject string) string {
	if c.domain == "" {
		return subject
	}
	return c.API(apiPrefix + "." + subject)
}

// Account returns the limits (0: unlimited) and use of the account's streams with a number of
// replicas, in bytes per replica.
func (c *Conn) Account(ctx context.Context, replicas int) (jetstream.Tier, error) {
	info, err := c.AccountInfo(ctx)
	if err != nil {
		return jetstream.Tier{}, Translate(err)
	}
	tier, found := info.Tiers["R"+strconv.Itoa(replicas)]
	if !found {
		tier = info.Tier
		tier.Limits.MaxStore /= int64(replicas)
		tier.Limits.MaxMemory /= int64(replicas)
		tier.Store /= uint64(replicas)
	}
	tier.Limits.MaxStore = max(0, tier.Limits.MaxStore)
	if tier.Limits.MaxStore == 0 && tier.Limits.MaxBytesRequired {
		tier.Limits.MaxStore = assumedStore
	}
	tier.Limits.StoreMaxStreamBytes = max(0, tier.Limits.StoreMaxStreamBytes)
	return tier, nil
}

// bounded calls do, again with a bound for the stream if the account requires one.
func (c *Conn) bounded(ctx context.Context, config jetstream.StreamConfig,
	do func(context.Context, jetstream.StreamConfig) (jetstream.Stream, error)) error {

	try := func() error {
		_, err := within(ctx, c, false, func(ctx context.Context) (jetstream.Stream, error) {
			return do(ctx, config)
		})
		return err
	}
	err := try()
	if !HasCode(err, codeMaxBytesRequired) {
		return err
	}
	account, failed := c.Account(ctx, max(1, config.Replicas))
	if failed != nil {
		return fmt.Errorf("%w; ask for the account's limits: %w", err, failed)
	}
	limits := account.Limits
	config.MaxBytes = limits.MaxStore / otherStreams
	most := limits.StoreMaxStreamBytes
	if config.Storage == jetstream.MemoryStorage {
		config.MaxBytes, most = max(0, limits.MaxMemory)/2, limits.MemoryMaxStreamBytes
	}
	config.MaxBytes = cmp.Or(config.MaxBytes, assumedStore/otherStreams)
	if most > 0 {
		config.MaxBytes = min(config.MaxBytes, most)
	}
	return try()
}
