// Package backup writes an installation into one file and restores it, by JetStream's snapshots,
// while everything runs.
//
// The file is a tar. It has each stream's description (NAME/stream.json) and the pieces of its
// snapshot (NAME/1, NAME/2, …), and at the end complete.json with their sums.
package backup

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
)

const (
	version = 1
	// idle bounds one step: the first one reads the whole stream.
	idle = 30 * time.Second

	headName = "/stream.json"
	lastName = "complete.json"
)

// Contents is the last file of a backup: it lists the streams and says that all is there.
type Contents struct {
	V       int       `json:"v"`
	Made    time.Time `json:"made"`
	Prefix  string    `json:"prefix"`
	Server  string    `json:"server"` // version of nats-server
	Streams []Stream  `json:"streams"`
	// LeftOut lists streams that are not included: see [jet.Broker.Kept].
	LeftOut []string `json:"left_out"`
}

// Stream is one stream of a backup.
type Stream struct {
	Name     string `json:"name"`
	Messages uint64 `json:"messages"`
	Pieces   int    `json:"pieces"`
	SHA256   string `json:"sha256"` // of its entries
}

// Write writes a backup of all streams of an installation, as a tar archive.
func Write(ctx context.Context, b *jet.Broker, to io.Writer) (Contents, error) {
	kept, leftOut, err := b.Kept(ctx)
	if err != nil {
		return Contents{}, fmt.Errorf("list the streams: %w", err)
	}
	if len(kept) == 0 {
		return Contents{}, fmt.Errorf("there is no installation with the prefix %s here",
			b.Names().Prefix())
	}
	js, err := jsapi.New(b.Conn(), b.Domain())
	if err != nil {
		return Contents{}, err
	}
	c := Contents{V: version, Made: time.Now().UTC(), Prefix: b.Names().Prefix(),
		Server: b.Conn().ConnectedServerVersion(), LeftOut: leftOut}
	out := tar.NewWriter(to)
	for _, name := range kept {
		s, err := write(ctx, js, name, out)
		if jsapi.HasCode(err, jetstream.JSErrCodeStreamNotFound) {
			continue
		}
		if err != nil {
			return Contents{}, fmt.Errorf("back up %s: %w", name, err)
		}
		c.Streams = append(c.Streams, s)
	}
	text, err := json.MarshalIndent(c, "", " ")
	if err == nil {
		err = entry(out, lastName, text)
	}
	if err == nil {
		err = out.Close()
	}
	return c, err
}

func entry(out *tar.Writer, name string, text []byte) error {
	h := tar.Header{Name: name, Mode: 0o600, Size: int64(len(text)), Format: tar.FormatPAX}
	if err := out.WriteHeader(&h); err != nil {
		return err
	}
	_, err := out.Write(text)
	return err
}

func write(ctx context.Context, js *jsapi.Conn, name string, out *tar.Writer) (Stream, error) {
	inbox := js.NATS.NewInbox()
	pieces, err := js.NATS.SubscribeSync(inbox)
	if err != nil {
		return Stream{}, err
	}
	defer func() { _ = pieces.Unsubscribe() }()
	if err := pieces.SetPendingLimits(-1, -1); err != nil {
		return Stream{}, err
	}
	info, err := js.StreamInfo(ctx, name, "")
	if err != nil {
		return Stream{}, err
	}
	var answer map[string]json.RawMessage
	err = js.CallWithin(ctx, idle, "$JS.API.STREAM.SNAPSHOT."+name,
		map[string]any{"deliver_subject": inbox, "no_consumers": true}, &answer)
	if err != nil {
		return Stream{}, err
	}
	var state jetstream.StreamState
	if err := json.Unmarshal(answer["state"], &state); err != nil {
		return Stream{}, fmt.Errorf("read answer: %w", err)
	}
	s, sum := Stream{Name: name, Messages: state.Msgs}, sha256.New()
	about, err := json.Marshal(map[string]any{"config": answer["config"],
		"state": answer["state"], "created": info.Created})
	if err == nil {
		err = summed(out, sum, name+headName, about)
	}
	if err != nil {
		return Stream{}, err
	}
	for {
		m, err := next(ctx, pieces)
		if err != nil {
			return Stream{}, err
		}
		if len(m.Data) == 0 {
			if status := m.Header.Get("Status"); status != "" && status != "204" {
				return Stream{}, fmt.Errorf("the server gave up: %s %s", status,
					m.Header.Get("Description"))
			}
			s.SHA256 = hex.EncodeToString(sum.Sum(nil))
			return s, nil
		}
		s.Pieces++
		if err := summed(out, sum, name+"/"+strconv.Itoa(s.Pieces), m.Data); err != nil {
			return Stream{}, err
		}
		if m.Reply != "" { // the server waits for a confirmation
			if err := js.NATS.Publish(m.Reply, nil); err != nil {
				return Stream{}, err
			}
		}
	}
}

func next(ctx context.Context, pieces *nats.Subscription) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, idle)
	defer cancel()
	m, err := pieces.NextMsgWithContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("wait for the next piece: %w", err)
	}
	return m, nil
}

func summed(out *tar.Writer, sum hash.Hash, name string, text []byte) error {
	sum.Write(text)
	return entry(out, name, text)
}

// ErrCut: a backup lacks a part, or a checksum differs.
var ErrCut = errors.New("this is not a complete backup: it was cut off or changed")

// Read checks that a backup is whole. It reads to the end.
func Read(from io.Reader) (Contents, error) {
	sums := map[string]hash.Hash{}
	pieces := map[string]int{}
	in := tar.NewReader(from)
	for {
		h, err := in.Next()
		if err != nil {
			return Contents{}, fmt.Errorf("%w (%w)", ErrCut, err)
		}
		if h.Name == lastName {
			break
		}
		name, n, err := place(h.Name)
		if err != nil {
			return Contents{}, err
		}
		if sums[name] == nil {
			sums[name] = sha256.New()
		}
		if n > 0 {
			pieces[name]++
		}
		if _, err := io.Copy(sums[name], in); err != nil {
			return Contents{}, fmt.Errorf("%w (%w)", ErrCut, err)
		}
	}
	var c Contents
	if err := json.NewDecoder(in).Decode(&c); err != nil {
		return Contents{}, fmt.Errorf("%w (%w)", ErrCut, err)
	}
	if c.V != version {
		return Contents{}, fmt.Errorf("the backup is of form %d, and this program knows %d", c.V,
			version)
	}
	for _, s := range c.Streams {
		sum := sums[s.Name]
		if sum == nil || hex.EncodeToString(sum.Sum(nil)) != s.SHA256 ||
			pieces[s.Name] != s.Pieces {
			return Contents{}, fmt.Errorf("%w: %s is not what was written", ErrCut, s.Name)
		}
	}
	return c, nil
}
