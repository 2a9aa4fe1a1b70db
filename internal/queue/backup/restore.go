package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
)

// unknown bounds the time until servers of a cluster see each other's subscriptions.
const unknown = 5 * time.Second

// electing bounds the time until a new cluster has a leader.
const electing = 30 * time.Second

// Restore recreates an installation, completely or not at all, with the broker's number of
// replicas. It requires that no installation with its prefix exists, and that no admitter or
// drainer runs there.
func Restore(ctx context.Context, b *jet.Broker, from io.ReadSeeker) (Contents, error) {
	c, err := Read(from)
	if err != nil {
		return Contents{}, err
	}
	if prefix := b.Names().Prefix(); c.Prefix != prefix {
		return Contents{}, fmt.Errorf("the backup is of an installation with nats.prefix %s, and "+
			"the configuration says %s: subjects cannot change in a restore", c.Prefix, prefix)
	}
	kept, others, err := b.Kept(ctx)
	for end := time.Now().Add(electing); errors.Is(err, jet.ErrUnavailable) &&
		time.Now().Before(end); kept, others, err = b.Kept(ctx) {
		if ended := jsapi.Pause(ctx, unknown/10); ended != nil {
			return Contents{}, ended
		}
	}
	if err != nil {
		return Contents{}, fmt.Errorf("list the streams: %w", err)
	}
	if there := append(kept, others...); len(there) > 0 {
		return Contents{}, fmt.Errorf("an installation is there already, which a restore does not "+
			"touch (%s): restore into an empty account or directory, while no admitter and no "+
			"drainer runs", strings.Join(there, ", "))
	}
	if _, err := from.Seek(0, io.SeekStart); err != nil {
		return Contents{}, err
	}
	js, err := jsapi.New(b.Conn(), b.Domain())
	if err != nil {
		return Contents{}, err
	}
	r := restoring{js: js, replicas: b.Replicas(), in: tar.NewReader(from),
		at: strconv.FormatInt(time.Now().UnixNano(), 10)}
	for _, s := range c.Streams {
		if err := r.stream(ctx, s); err != nil {
			return Contents{}, errors.Join(fmt.Errorf("restore %s: %w", s.Name, err), r.undo(ctx))
		}
	}
	return c, nil
}

type restoring struct {
	js       *jsapi.Conn
	replicas int
	in       *tar.Reader
	at       string // see jsapi.MetaRestored
	done     []string
}

func (r *restoring) stream(ctx context.Context, s Stream) error {
	text, err := r.next(s.Name, 0)
	if err != nil {
		return err
	}
	var about struct {
		Config  map[string]any  `json:"config"`
		State   json.RawMessage `json:"state"`
		Created time.Time       `json:"created"`
	}
	exact := json.NewDecoder(bytes.NewReader(text))
	exact.UseNumber()
	if err := exact.Decode(&about); err != nil {
		return err
	}
	metadata, _ := about.Config["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata[jsapi.MetaCreated] = strconv.FormatInt(about.Created.UnixNano(), 10)
	before, _ := metadata[jsapi.MetaRestored].(string)
	metadata[jsapi.MetaRestored] = strings.TrimSpace(before + " " + r.at)
	maps.Copy(about.Config, map[string]any{"num_replicas": r.replicas, "max_bytes": -1,
		"metadata": metadata})
	delete(about.Config, "placement")
	var opened struct {
		Deliver string `json:"deliver_subject"`
	}
	err = r.js.CallWithin(ctx, idle, "$JS.API.STREAM.RESTORE."+s.Name,
		map[string]any{"config": about.Config, "state": about.State}, &opened)
	if err != nil {
		return err
	}
	r.done = append(r.done, s.Name)
	for n := 1; n <= s.Pieces; n++ {
		piece, err := r.next(s.Name, n)
		if err != nil {
			return err
		}
		if err := r.send(ctx, opened.Deliver, piece); err != nil {
			return err
		}
	}
	return r.send(ctx, opened.Deliver, nil)
}

// next reads piece n of a stream; 0 is its description.
func (r *restoring) next(name string, n int) ([]byte, error) {
	h, err := r.in.Next()
	if err != nil {
		return nil, err
	}
	if have, piece, err := place(h.Name); err != nil || have != name || piece != n {
		return nil, fmt.Errorf("%w: %s stands where piece %d of it should", ErrCut, h.Name, n)
	}
	return io.ReadAll(r.in)
}

// send sends a piece (empty: the end) and waits for its confirmation.
func (r *restoring) send(ctx context.Context, to string, piece []byte) error {
	ctx, cancel := context.WithTimeout(ctx, idle)
	defer cancel()
	answer, err := r.js.NATS.RequestWithContext(ctx, to, piece)
	// In a cluster another server, which may restore it, may not have published its subscription
	// yet.
	for end := time.Now().Add(unknown); errors.Is(err, nats.ErrNoResponders) &&
		time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(unknown / 100):
		}
		answer, err = r.js.NATS.RequestWithContext(ctx, to, piece)
	}
	if err != nil {
		return err
	}
	if len(answer.Data) == 0 {
		return nil
	}
	return jsapi.Answered(answer.Data, &struct{}{})
}

func (r *restoring) undo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), idle)
	defer cancel()
	var problems []error
	for _, name := range r.done {
		err := r.js.DeleteStream(ctx, name)
		if err != nil && !jsapi.HasCode(err, jetstream.JSErrCodeStreamNotFound) {
			problems = append(problems, fmt.Errorf("delete %s again: %w", name, err))
		}
	}
	return errors.Join(problems...)
}

func place(name string) (stream string, piece int, err error) {
	stream, what, _ := strings.Cut(name, "/")
	if "/"+what == headName {
		return stream, 0, nil
	}
	if piece, err = strconv.Atoi(what); err != nil || piece < 1 {
		return "", 0, fmt.Errorf("%w: it has %.100q", ErrCut, name)
	}
	return stream, piece, nil
}
