package jsapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

var ErrHeaderUnreadable = errors.New("its headers cannot be read")

type Message struct {
	Subject    string
	Seq        uint64
	Time       time.Time
	Header     nats.Header // nil if unreadable
	Unreadable bool
	Data       []byte
}

// ServerSays returns the last header of a name, the server's, because a publisher may have set it,
// too.
func ServerSays(h nats.Header, name string) string {
	if values := h[name]; len(values) > 0 {
		return values[len(values)-1]
	}
	return ""
}

// unreadable reports whether the client dropped headers.
func unreadable(m *nats.Msg) bool {
	return m.Header == nil && m.Size() > len(m.Subject)+len(m.Reply)+len(m.Data)
}

// Message reads a message from a stream's leader.
func (c *Conn) Message(ctx context.Context, stream string, request any) (Message, error) {
	var answer struct {
		Message struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Header  []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	if err := c.Call(ctx, "$JS.API.STREAM.MSG.GET."+stream, request, &answer); err != nil {
		return Message{}, err
	}
	m := Message{Subject: answer.Message.Subject, Seq: answer.Message.Seq,
		Time: answer.Message.Time, Data: answer.Message.Data}
	if len(answer.Message.Header) > 0 {
		var err error
		m.Header, err = nats.DecodeHeadersMsg(answer.Message.Header)
		m.Unreadable = err != nil
	}
	return m, nil
}

// mostGets bounds concurrent single requests. Before a batch the server counts all later messages,
// which takes milliseconds in a stream with gaps.
const mostGets = 128

// Directs reads messages from any replica, by ascending sequences. Seq is 0 if the replica lags or
// the message is unusual. It fails without an answer for Conn.Timeout.
func (c *Conn) Directs(ctx context.Context, stream string, seqs []uint64) ([]Message, error) {
	// nats.Conn.Request would read a job's header Status: 503 as "no responders".
	inbox, answers := c.NATS.NewInbox(), make(chan *nats.Msg, mostGets)
	sub, err := c.NATS.ChanSubscribe(inbox, answers)
	if err != nil {
		return nil, Translate(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	silence := time.NewTimer(c.Timeout)
	defer silence.Stop()
	subject, sent := c.API("$JS.API.DIRECT.GET."+stream), 0
	ask := func(n int) error {
		for range n {
			request := append(strconv.AppendUint([]byte(`{"seq":`), seqs[sent], 10), '}')
			if err := c.NATS.PublishRequest(subject, inbox, request); err != nil {
				return Translate(err)
			}
			sent++
		}
		return nil
	}
	read := make([]Message, len(seqs))
	for got := range seqs {
		if sent-got <= mostGets/2 { // many in one write
			if err := ask(min(len(seqs), got+mostGets) - sent); err != nil {
				return nil, err
			}
		}
		m, err := next(ctx, answers, silence.C)
		if err != nil {
			return nil, err
		}
		silence.Reset(c.Timeout)
		if found, ok := ReadDirect(m); ok {
			if i, asked := slices.BinarySearch(seqs, found.Seq); asked {
				read[i] = found
			}
		}
	}
	return read, nil
}

func next(ctx context.Context, answers <-chan *nats.Msg, patience <-chan time.Time) (
	m *nats.Msg, err error) {

	select {
	case m = <-answers:
		if m == nil {
			err = nats.ErrConnectionClosed
		}
	case <-patience:
		err = nats.ErrTimeout
	case <-ctx.Done():
		err = ctx.Err()
	}
	return m, Translate(err)
}

const batchBytes = 1 << 20

// DirectGet asks any replica for up to most messages, and also returns the last answer's header.
func (c *Conn) DirectGet(ctx context.Context, stream string, request any, most int) (
	read []Message, end nats.Header, err error) {

	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	inbox, answers := c.NATS.NewInbox(), make(chan *nats.Msg, most+1)
	sub, err := c.NATS.ChanSubscribe(inbox, answers)
	if err != nil {
		return nil, nil, Translate(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	body, _ := json.Marshal(request)
	if err := c.NATS.PublishRequest(c.API("$JS.API.DIRECT.GET."+stream), inbox, body); err != nil {
		return nil, nil, Translate(err)
	}
	for {
		m, err := next(ctx, answers, nil)
		if err != nil {
			return nil, nil, err
		}
		if found, ok := ReadDirect(m); ok {
			read = append(read, found)
			continue
		}
		switch status := m.Header.Get("Status"); {
		case len(m.Data) > 0:
		case status == "204", status == "404":
			return read, m.Header, nil
		case status == "503":
			return nil, nil, Translate(nats.ErrNoResponders)
		case status != "":
			return nil, nil, fmt.Errorf("%w: %s %s", ErrUnavailable, status,
				m.Header.Get("Description"))
		}
	}
}

// Messages reads the messages of a subject ("": all) in order from any replica, up to n or about
// [batchBytes] at a time, but at least one. It omits unusual messages and those that the replica
// lacks.
func (c *Conn) Messages(ctx context.Context, stream, subject string, from uint64,
	n int) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		for {
			read, _, err := c.DirectGet(ctx, stream, struct {
				Seq      uint64 `json:"seq"`
				Subject  string `json:"next_by_subj,omitempty"`
				Batch    int    `json:"batch"`
				MaxBytes int    `json:"max_bytes"`
			}{max(from, 1), subject, n, batchBytes}, n)
			for _, m := range read {
				if !yield(m, nil) {
					return
				}
				from = m.Seq + 1
			}
			if err != nil {
				yield(Message{}, err)
			}
			if err != nil || len(read) == 0 {
				return
			}
		}
	}
}

func ReadDirect(m *nats.Msg) (Message, bool) {
	stored, err := time.Parse(time.RFC3339Nano, ServerSays(m.Header, "Nats-Time-Stamp"))
	subject := ServerSays(m.Header, "Nats-Subject")
	seq, bad := strconv.ParseUint(ServerSays(m.Header, "Nats-Sequence"), 10, 64)
	if err != nil || bad != nil || subject == "" {
		return Message{}, false
	}
	for _, name := range []string{"Nats-Stream", "Nats-Subject", "Nats-Sequence",
		"Nats-Time-Stamp", "Nats-Num-Pending", "Nats-Last-Sequence"} {
		delete(m.Header, name)
	}
	return Message{Subject: subject, Seq: seq, Time: stored, Header: m.Header, Data: m.Data}, true
}

// NextStored asks the leader for the first matching sequence at or after from. Without one it
// returns math.MaxUint64.
func (c *Conn) NextStored(ctx context.Context, stream, filter string, from uint64) (uint64, error) {
	filter = cmp.Or(filter, ">")
	m, err := c.Message(ctx, stream, map[string]any{"seq": from, "next_by_subj": filter})
	if errors.Is(err, ErrNotFound) {
		return math.MaxUint64, nil
	}
	return m.Seq, err
}
