package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// tombstoneTTL is how long the marker of a deleted key stays, so that deletions leave nothing behind for ever. A
	// watch that was cut off for longer notices the deletion all the same, because it reads everything again.
	tombstoneTTL = time.Hour

	headerExpectedRevision = "Nats-Expected-Last-Subject-Sequence"
	headerTTL              = "Nats-TTL"
	headerOperation        = "KV-Operation"
	headerMarker           = "Nats-Marker-Reason" // on a marker that the server wrote

	// maxAttempts bounds the records of attempts, some 60 MB. A job whose record went counts its attempts anew after the
	// next takeover; that is better than leases that find no room.
	maxAttempts = 200_000
)

// Record is one value of a [Table].
type Record struct {
	Key      string
	Value    []byte
	Revision uint64    // grows with every write to the table, of any key
	Stored   time.Time // by JetStream's clock
	Deleted  bool      // the key has no value any more; Value is nil
}

// Table is a KV bucket used for compare-and-set records. Any KV client can read it. Keys are subject tokens of letters,
// digits, "-", "_", "/" and "=", separated by dots.
type Table struct {
	b      *Broker
	bucket string
	stream string
	prefix string // of subjects
	// most bounds the number of records, and beside it the table has a part of a store of known size; then the oldest go.
	// 0: no bound.
	most   int64
	memory bool // the records are gone after the server's restart
}

func newTable(b *Broker, bucket string) *Table {
	return &Table{b: b, bucket: bucket, stream: "KV_" + bucket, prefix: "$KV." + bucket + "."}
}

// config is what nats.go gives a KV bucket with one value per key, plus TTLs for single messages, and a bound that fits a
// store of size bytes, 0 for one that is not known.
func (t *Table) config(replicas int, size int64) jetstream.StreamConfig {
	c := jetstream.StreamConfig{
		Name:              t.stream,
		Description:       "Penstock records",
		Subjects:          []string{t.prefix + ">"},
		MaxMsgsPerSubject: 1,
		MaxMsgs:           -1,
		MaxBytes:          -1,
		MaxMsgSize:        -1,
		MaxConsumers:      -1,
		Storage:           jetstream.FileStorage,
		Discard:           jetstream.DiscardNew,
		Duplicates:        2 * time.Minute,
		Replicas:          replicas,
		AllowRollup:       true,
		DenyDelete:        true,
		AllowDirect:       true,
		AllowMsgTTL:       true,
	}
	if t.memory {
		c.Storage = jetstream.MemoryStorage
	}
	if t.most > 0 {
		c.Discard, c.MaxMsgs = jetstream.DiscardOld, t.most
		if size > 0 && !t.memory {
			c.MaxBytes = size / storeDenominator
		}
	}
	return c
}

// Put writes a value if the key's revision is still the given one, and returns the new revision. Revision 0 means that
// the key must not exist, or must be deleted. Another revision is [ErrConflict]. After any other error the result is
// unknown: the write may have been applied, so read it back.
func (t *Table) Put(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	return t.put(ctx, key, value, revision, nil)
}

// put is Put with headers of the caller's, such as a time to live.
func (t *Table) put(
	ctx context.Context, key string, value []byte, revision uint64, header nats.Header,
) (uint64, error) {
	written, err := t.publish(ctx, key, value, &revision, header)
	if revision == 0 && errors.Is(err, ErrConflict) {
		// The marker of a deleted key has a revision of its own.
		var last Record
		if last, err = t.Read(ctx, key); err == nil {
			err = fmt.Errorf("%w: the key exists at revision %d", ErrConflict, last.Revision)
		} else if errors.Is(err, ErrNotFound) {
			written, err = t.publish(ctx, key, value, &last.Revision, header)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("put %s/%s at revision %d: %w", t.bucket, key, revision, err)
	}
	return written, nil
}

// Set writes a value whatever the key's revision is.
func (t *Table) Set(ctx context.Context, key string, value []byte) error {
	if _, err := t.publish(ctx, key, value, nil, nil); err != nil {
		return fmt.Errorf("set %s/%s: %w", t.bucket, key, err)
	}
	return nil
}

// setFor is Set of a value that the server removes after some time.
func (t *Table) setFor(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	if _, err := t.publish(ctx, key, value, nil, nats.Header{headerTTL: {ttl.String()}}); err != nil {
		return fmt.Errorf("set %s/%s: %w", t.bucket, key, err)
	}
	return nil
}

// Delete removes a key's value if its revision is still the given one, 0 for whatever it is. Another revision is
// [ErrConflict]; deleting what does not exist is no error.
func (t *Table) Delete(ctx context.Context, key string, revision uint64) error {
	var expected *uint64
	if revision > 0 {
		expected = &revision
	}
	header := nats.Header{headerOperation: {"DEL"}, headerTTL: {tombstoneTTL.String()}}
	if _, err := t.publish(ctx, key, nil, expected, header); err != nil {
		return fmt.Errorf("delete %s/%s at revision %d: %w", t.bucket, key, revision, err)
	}
	return nil
}

// publish stores one message for a key and translates the errors.
func (t *Table) publish(
	ctx context.Context, key string, value []byte, expected *uint64, header nats.Header,
) (uint64, error) {
	if !validRecordKey(key) {
		return 0, fmt.Errorf("%q is not a record's key", key)
	}
	if header == nil {
		header = nats.Header{}
	}
	if expected != nil {
		header[headerExpectedRevision] = []string{strconv.FormatUint(*expected, 10)}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	m, err := t.b.nc.RequestMsgWithContext(ctx, &nats.Msg{Subject: t.prefix + key, Header: header, Data: value})
	if err != nil {
		return 0, translate(err)
	}
	ack, err := parsePubAck(m.Data)
	return ack.Seq, translate(err)
}

// Read reads a key from the stream's leader, never from a replica that may lag behind. A key without a value is
// [ErrNotFound]; for a deleted one the record still tells the marker's Revision and Stored.
func (t *Table) Read(ctx context.Context, key string) (Record, error) {
	r, err := t.read(ctx, key)
	if err == nil && r.Deleted {
		err = fmt.Errorf("%w: deleted", ErrNotFound)
	}
	if err != nil {
		return r, fmt.Errorf("read %s/%s: %w", t.bucket, key, err)
	}
	return r, nil
}

// read is Read, but a deleted key is no error.
func (t *Table) read(ctx context.Context, key string) (Record, error) {
	if !validRecordKey(key) {
		return Record{Key: key}, fmt.Errorf("%q is not a record's key", key)
	}
	stored, err := t.b.storedMessage(ctx, t.stream, map[string]any{"last_by_subj": t.prefix + key})
	if err != nil {
		return Record{Key: key}, err
	}
	if stored.Unreadable {
		return Record{Key: key}, errHeaderUnreadable // it may say that the key is deleted
	}
	return t.record(stored.Subject, stored.Header, stored.Data, stored.Seq, stored.Time), nil
}

func (t *Table) record(subject string, header nats.Header, data []byte, seq uint64, stored time.Time) Record {
	r := Record{Key: strings.TrimPrefix(subject, t.prefix), Value: data, Revision: seq, Stored: stored}
	if header.Get(headerOperation) != "" || header.Get(headerMarker) != "" {
		r.Value, r.Deleted = nil, true
	}
	return r
}

// List reads all records whose key matches a filter such as "stripe.3.*" or ">", sorted by key, without deleted ones: as
// the stream's leader has them, or later.
func (t *Table) List(ctx context.Context, filter string) ([]Record, error) {
	records, err := t.list(ctx, filter)
	if err != nil {
		return nil, fmt.Errorf("list %s/%s: %w", t.bucket, filter, err)
	}
	return records, nil
}

func (t *Table) list(ctx context.Context, filter string) ([]Record, error) {
	keys, err := t.keys(ctx, filter)
	if err != nil {
		return nil, err
	}
	return t.readAll(ctx, keys)
}

// keys finds the keys that match a filter, in no order; some may be deleted.
func (t *Table) keys(ctx context.Context, filter string) ([]string, error) {
	info, err := t.b.streamInfo(ctx, t.stream, t.prefix+filter)
	if err != nil {
		return nil, translate(err)
	}
	keys := make([]string, 0, len(info.State.Subjects))
	for subject := range info.State.Subjects {
		keys = append(keys, strings.TrimPrefix(subject, t.prefix))
	}
	return keys, nil
}

// Now is the time by the clock that Record.Stored is told by, so that their difference is an age.
func (t *Table) Now(ctx context.Context) (time.Time, error) {
	info, err := t.b.streamInfo(ctx, t.stream, "")
	if err != nil {
		return time.Time{}, fmt.Errorf("time at %s: %w", t.bucket, translate(err))
	}
	return info.TimeStamp, nil
}

// Created is when the table was made, or made anew, by the server's clock.
func (t *Table) Created(ctx context.Context) (time.Time, error) {
	info, err := t.b.streamInfo(ctx, t.stream, "")
	if err != nil {
		return time.Time{}, fmt.Errorf("creation of %s: %w", t.bucket, translate(err))
	}
	return info.Created, nil
}

// count is how many keys match a filter, those included that were deleted within an hour.
func (t *Table) count(ctx context.Context, filter string) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	request := fmt.Sprintf(`{"seq":1,"next_by_subj":%q,"batch":1}`, t.prefix+filter)
	m, err := t.b.nc.RequestWithContext(ctx, "$JS.API.DIRECT.GET."+t.stream, []byte(request))
	if err != nil {
		return 0, translate(err)
	}
	if m.Header.Get("Status") == "404" {
		return 0, nil
	}
	rest, err := strconv.ParseUint(m.Header.Get("Nats-Num-Pending"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("count %s/%s: %w: %w", t.bucket, filter, ErrUnavailable, err)
	}
	return rest + 1, nil // with the one that came
}

func validRecordKey(key string) bool {
	if key == "" || key[0] == '.' || key[len(key)-1] == '.' || strings.Contains(key, "..") {
		return false
	}
	for i := 0; i < len(key); i++ {
		if !standsInRecordKey(key[i]) {
			return false
		}
	}
	return true
}

func standsInRecordKey(c byte) bool {
	letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
	return letter || c == '.' || c == '-' || c == '_' || c == '/' || c == '='
}
