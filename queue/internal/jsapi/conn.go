// Package jsapi is JetStream's API as packages queue and kv use it: requests with deadlines, the
// kinds of its errors, reads from a stream's leader, and pulls that notice what is missing.
package jsapi

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/penstock-mq/penstock/internal/race"
	"github.com/penstock-mq/penstock/queue/job"
)

// CallTimeout bounds every JetStream call that has no shorter deadline.
const CallTimeout = 2 * time.Second * race.Slower

// Conn is a connection to NATS with the API of its JetStream.
type Conn struct {
	jetstream.JetStream
	NATS *nats.Conn
}

// New returns the API over a connection, and does no I/O.
func New(nc *nats.Conn) (*Conn, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	return &Conn{js, nc}, nil
}

// MetaVersion is the key of a stream's metadata that holds the version of its format.
const MetaVersion = "penstock.v"

// Keys of the metadata of a stream that was restored from a backup, in nanoseconds of Unix time.
const (
	// MetaCreated is when the stream was created first: JetStream says when it was restored, which
	// is after what it holds was stored.
	MetaCreated = "penstock.created"
	// MetaRestored is when it was restored, each time that it was. Jobs that are stored from then
	// on get numbers that were given before, to jobs that came after the backup; by it they are
	// told apart.
	MetaRestored = "penstock.restored"
)

// Instants reads instants from a stream's metadata.
func Instants(metadata map[string]string, key string) []time.Time {
	var found []time.Time
	for word := range strings.FieldsSeq(metadata[key]) {
		if at, err := strconv.ParseInt(word, 10, 64); err == nil { // else somebody else's
			found = append(found, time.Unix(0, at))
		}
	}
	return found
}

// createTries is how often a stream is created that other processes create at the same time.
const createTries = 10

// Ensure creates a stream whose settings never change but for its replicas and its bound, or checks
// that it is there. Its sequences, which are the revisions of a table, begin with the time in µs:
// should the stream be lost and made again, they go on above all former ones, because nobody writes
// a million times a second, so that comparing them stays right.
func (c *Conn) Ensure(ctx context.Context, want jetstream.StreamConfig) error {
	want.Metadata = map[string]string{MetaVersion: strconv.Itoa(job.FormatVersion)}
	info, err := c.StreamInfo(ctx, want.Name, "")
	for tries := 1; HasCode(err, CodeStreamNotFound); tries++ {
		// Another process may be faster, or about it: the server makes no two stores of one name.
		created := c.create(ctx, want)
		if !HasCode(created, CodeNameInUse, CodeNotCreated) || tries == createTries {
			return Translate(created)
		}
		info, err = c.StreamInfo(ctx, want.Name, "")
	}
	if err != nil {
		return Translate(err)
	}
	if err := CheckVersion(info.Config.Metadata); err != nil {
		return err
	}
	have := &info.Config
	if have.Replicas == want.Replicas && have.MaxMsgs == want.MaxMsgs &&
		have.MaxBytes == want.MaxBytes &&
		have.Discard == want.Discard {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	have.Replicas, have.MaxMsgs, have.MaxBytes, have.Discard = want.Replicas, want.MaxMsgs,
		want.MaxBytes, want.Discard
	_, err = c.UpdateStream(ctx, *have)
	return Translate(err)
}

func (c *Conn) create(ctx context.Context, want jetstream.StreamConfig) error {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	want.FirstSeq = uint64(time.Now().UnixMicro())
	_, err := c.CreateStream(ctx, want)
	return err
}

// CheckVersion refuses what a newer Penstock has made. No version at all is somebody else's stream.
func CheckVersion(metadata map[string]string) error {
	if v := metadata[MetaVersion]; v != strconv.Itoa(job.FormatVersion) {
		return fmt.Errorf("%w: format version %q, want %d", job.ErrVersion, v, job.FormatVersion)
	}
	return nil
}

// created is when a stream was created first.
func created(info *jetstream.StreamInfo) time.Time {
	if at := Instants(info.Config.Metadata, MetaCreated); len(at) > 0 {
		return at[0]
	}
	return info.Created
}

// listTimeout bounds the listing of all streams, of which there may be tens of thousands.
const listTimeout = 10 * CallTimeout

// EachStream calls found for every stream of the account, or those that options choose: a page of
// the list holds 256. Errors are JetStream's own: Translate them.
func (c *Conn) EachStream(ctx context.Context, found func(*jetstream.StreamInfo),
	o ...jetstream.StreamListOpt) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	list := c.ListStreams(ctx, o...)
	for info := range list.Info() {
		info.Created = created(info)
		found(info)
	}
	return list.Err()
}

// StreamInfo asks for a stream's settings and state, and with a filter also for the messages per
// subject. Errors are JetStream's own: Translate them.
func (c *Conn) StreamInfo(ctx context.Context,
	stream, filter string) (*jetstream.StreamInfo, error) {
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
		if err := c.Call(ctx, "$JS.API.STREAM.INFO."+stream, request{filter, offset}, &page); err !=
			nil {
			return nil, err
		}
		if all == nil {
			all = &page.StreamInfo
			all.Created = created(all)
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

// Call makes one JetStream API request with a deadline of its own. A refusal is an *Refusal.
func (c *Conn) Call(ctx context.Context, subject string, request, response any) error {
	return c.CallWithin(ctx, CallTimeout, subject, request, response)
}

// CallWithin is Call of what may take longer.
func (c *Conn) CallWithin(ctx context.Context, within time.Duration, subject string,
	request, response any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	m, err := c.NATS.RequestWithContext(ctx, subject, body)
	if err != nil {
		return err
	}
	return Answered(m.Data, response)
}

// Answered reads what JetStream answers to a request of its API. A refusal is an *Refusal.
func Answered(answer []byte, response any) error {
	var refusal struct {
		Error *Refusal `json:"error"`
	}
	if err := json.Unmarshal(answer, &refusal); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if refusal.Error != nil {
		return refusal.Error
	}
	if err := json.Unmarshal(answer, response); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	return nil
}

// NewID is a name that nobody else uses.
func NewID() string { return nuid.Next() }
