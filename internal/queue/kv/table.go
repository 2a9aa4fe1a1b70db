// Package kv keeps records in JetStream's KV buckets: replaced by compare-and-set, read from the
// leader, and watched without a gap.
package kv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/base/errs"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
)

// The same as in package queue.
var (
	// ErrConflict: a key has an unexpected revision.
	ErrConflict = jsapi.ErrConflict
	// ErrNotFound: a key has no value.
	ErrNotFound = jsapi.ErrNotFound
)

const (
	// tombstoneTTL is the life of a deleted key's marker. After a longer interruption a watch reads
	// everything again.
	tombstoneTTL = time.Hour

	headerExpectedRevision = "Nats-Expected-Last-Subject-Sequence"
	headerTTL              = "Nats-TTL"
	headerOperation        = "KV-Operation"
	headerMarker           = "Nats-Marker-Reason" // written by the server
)

// Record is a row of a table.
type Record struct {
	Key      string
	Value    []byte
	Revision uint64    // grows with every write to the table
	Stored   time.Time // by JetStream's clock
	Deleted  bool
}

// Table is a KV bucket, which any KV client can read.
type Table struct {
	js      *jsapi.Conn
	log     *slog.Logger
	bucket  string
	stream  string
	prefix  string
	options Options
}

// Options configure a [Table]. The zero value is unbounded, on disk.
type Options struct {
	Description string
	Most        int64 // of records; the oldest are evicted; 0: no bound
	Memory      bool  // not on disk, unless the account has no memory
	// Refusal holds the error of all writes, if there is one. May be nil.
	Refusal *atomic.Pointer[error]
}

// Conn asks JetStream; package queue has one.
type Conn = jsapi.Conn

// New returns the table of a bucket; [Table.Ensure] creates it.
func New(js *Conn, bucket string, o Options, log *slog.Logger) *Table {
	return &Table{js: js, log: log, bucket: bucket, stream: "KV_" + bucket,
		prefix: "$KV." + bucket + ".", options: o}
}

// Bucket returns the name of the KV bucket.
func (t *Table) Bucket() string { return t.bucket }

// Ensure creates the bucket, or changes its replicas and size.
func (t *Table) Ensure(ctx context.Context, replicas int, bytes int64) (err error) {
	defer errs.Annotate(&err, "set up KV bucket %s", t.bucket)
	config := t.config(replicas, bytes)
	err = t.js.Ensure(ctx, config)
	if t.options.Memory && jsapi.HasCode(err, jsapi.CodeMemoryResources) { // the account has none
		config.Storage = jetstream.FileStorage
		err = t.js.Ensure(ctx, config)
	}
	return err
}

// config is nats.go's configuration of a KV bucket, with our bounds.
func (t *Table) config(replicas int, bytes int64) jetstream.StreamConfig {
	c := jetstream.StreamConfig{
		Name:              t.stream,
		Description:       t.options.Description,
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
	if t.options.Memory {
		c.Storage = jetstream.MemoryStorage
	}
	if t.options.Most > 0 {
		c.Discard, c.MaxMsgs = jetstream.DiscardOld, t.options.Most
		if bytes > 0 && !t.options.Memory {
			c.MaxBytes = bytes
		}
	}
	return c
}

// Put writes a value if the key still has the given revision (0: no value), and returns the new
// one, or [ErrConflict]. After any other error the write may have been applied.
func (t *Table) Put(ctx context.Context, key string, value []byte,
	revision uint64) (uint64, error) {
	return t.put(ctx, key, value, revision, nil)
}

func (t *Table) put(ctx context.Context, key string, value []byte, revision uint64,
	header nats.Header) (written uint64, err error) {
	defer errs.Annotate(&err, "put %s/%s at revision %d", t.bucket, key, revision)
	written, err = t.publish(ctx, key, value, &revision, header)
	if revision == 0 && errors.Is(err, ErrConflict) {
		var last Record
		if last, err = t.Read(ctx, key); err == nil {
			err = fmt.Errorf("%w: the key exists at revision %d", ErrConflict, last.Revision)
		} else if errors.Is(err, ErrNotFound) {
			written, err = t.publish(ctx, key, value, &last.Revision, header)
		}
	}
	return written, err
}

// Update replaces a value by compare-and-set and returns its revision, or 0 if it deleted the key;
// the server removes the value after ttl, if not 0. next gets the current record, without a Value
// if the key is missing, and is repeated after a conflict; it returns the same value for no change,
// and nil to delete. read, which may be nil, is the record as read before.
func (t *Table) Update(ctx context.Context, key string, read *Record, ttl time.Duration,
	next func(Record) ([]byte, error)) (revision uint64, err error) {
	for {
		var r Record
		if read != nil {
			r, read = *read, nil
		} else if r, err = t.Read(ctx, key); err != nil && !errors.Is(err, ErrNotFound) {
			return 0, err
		}
		value, err := next(r)
		switch {
		case err != nil || value == nil && r.Value == nil:
			return 0, err
		case bytes.Equal(value, r.Value):
			return r.Revision, nil
		case value == nil:
			err = t.Delete(ctx, key, r.Revision)
		default:
			revision, err = t.put(ctx, key, value, r.Revision, lasting(ttl))
		}
		if !errors.Is(err, ErrConflict) || ctx.Err() != nil {
			return revision, err
		}
	}
}

// Set writes a value at any revision; the server removes it after ttl, if not 0.
func (t *Table) Set(ctx context.Context, key string, value []byte, ttl time.Duration) (err error) {
	defer errs.Annotate(&err, "set %s/%s", t.bucket, key)
	_, err = t.publish(ctx, key, value, nil, lasting(ttl))
	return err
}

// SetNoWait is [Table.Set] without a confirmation.
func (t *Table) SetNoWait(key string, value []byte, ttl time.Duration) error {
	m := &nats.Msg{Subject: t.js.KV(t.prefix + key), Data: value, Header: lasting(ttl)}
	if err := t.js.NATS.PublishMsg(m); err != nil {
		return fmt.Errorf("set %s/%s: %w", t.bucket, key, jsapi.Translate(err))
	}
	return nil
}

func lasting(ttl time.Duration) nats.Header {
	if ttl == 0 {
		return nil
	}
	return nats.Header{headerTTL: {ttl.String()}}
}

// Delete deletes a key if it still has the given revision (0: any), or returns [ErrConflict]. A
// missing key is no error.
func (t *Table) Delete(ctx context.Context, key string, revision uint64) (err error) {
	defer errs.Annotate(&err, "delete %s/%s at revision %d", t.bucket, key, revision)
	var expected *uint64
	if revision > 0 {
		expected = &revision
	}
	header := lasting(tombstoneTTL)
	header[headerOperation] = []string{"DEL"}
	_, err = t.publish(ctx, key, nil, expected, header)
	return err
}

func (t *Table) publish(ctx context.Context, key string, value []byte, expected *uint64,
	header nats.Header) (uint64, error) {
	if !ValidKey(key) {
		return 0, fmt.Errorf("%q is not a record's key", key)
	}
	if t.options.Refusal != nil {
		if reason := t.options.Refusal.Load(); reason != nil {
			return 0, *reason
		}
	}
	if header == nil {
		header = nats.Header{}
	}
	if expected != nil {
		header[headerExpectedRevision] = []string{strconv.FormatUint(*expected, 10)}
	}
	ack, err := t.js.Publish(ctx, &nats.Msg{Subject: t.js.KV(t.prefix + key), Header: header,
		Data: value})
	return ack.Seq, err
}

// Read reads a key from the leader. It returns [ErrNotFound] without a value; a deleted key's
// record still has the marker's Revision and Stored.
func (t *Table) Read(ctx context.Context, key string) (r Record, err error) {
	defer errs.Annotate(&err, "read %s/%s", t.bucket, key)
	if r, err = t.read(ctx, key); err == nil && r.Deleted {
		err = fmt.Errorf("%w: deleted", ErrNotFound)
	}
	return r, err
}

func (t *Table) read(ctx context.Context, key string) (Record, error) {
	if !ValidKey(key) {
		return Record{Key: key}, fmt.Errorf("%q is not a record's key", key)
	}
	m, err := t.js.Message(ctx, t.stream, map[string]any{"last_by_subj": t.prefix + key})
	if err != nil {
		return Record{Key: key}, err
	}
	if m.Unreadable {
		return Record{Key: key}, jsapi.ErrHeaderUnreadable // the key may be deleted
	}
	return t.record(m), nil
}

func (t *Table) record(m jsapi.Message) Record {
	r := Record{Key: strings.TrimPrefix(m.Subject, t.prefix), Value: m.Data, Revision: m.Seq,
		Stored: m.Time}
	if m.Header.Get(headerOperation) != "" || m.Header.Get(headerMarker) != "" {
		r.Value, r.Deleted = nil, true
	}
	return r
}

// Now returns the time by the clock of Record.Stored.
func (t *Table) Now(ctx context.Context) (time.Time, error) {
	info, err := t.js.StreamInfo(ctx, t.stream, "")
	if err != nil {
		return time.Time{}, fmt.Errorf("time at %s: %w", t.bucket, err)
	}
	return info.TimeStamp, nil
}

// Created returns when the bucket was created: another one has another time.
func (t *Table) Created(ctx context.Context) (time.Time, error) {
	info, err := t.js.StreamInfo(ctx, t.stream, "")
	if err != nil {
		return time.Time{}, fmt.Errorf("creation of %s: %w", t.bucket, err)
	}
	return info.Created, nil
}

// ValidKey accepts letters, digits, "-", "_", "/" and "=", in tokens separated by dots.
func ValidKey(key string) bool {
	invalid := func(r rune) bool { return r > unicode.MaxASCII || !holds(byte(r)) }
	return key != "" && key[0] != '.' && key[len(key)-1] != '.' && !strings.Contains(key, "..") &&
		!strings.ContainsFunc(key, invalid)
}

// holds tells whether keys may contain a byte.
func holds(c byte) bool {
	letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
	return letter || c == '.' || c == '-' || c == '_' || c == '/' || c == '='
}
