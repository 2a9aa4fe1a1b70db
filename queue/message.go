package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// headerNATSStatus marks what servers say in place of a message. On a job it is nobody's, and would make clients take its
// dead letter, or its run in a worker elsewhere, for such a word.
const headerNATSStatus = "Status"

// errHeaderUnreadable is why a message is malformed whose header block is not one.
var errHeaderUnreadable = errors.New("its headers cannot be read")

// storedMessage is a message as it lies in a stream.
type storedMessage struct {
	Subject    string
	Seq        uint64
	Time       time.Time
	Header     nats.Header // nil also when it is unreadable
	Unreadable bool
	Data       []byte
}

// arrived reads a stored job. Whatever is in it, it is some job: one that cannot be understood is Malformed.
func (b *Broker) arrived(m storedMessage, lean bool) Arrived {
	a := Arrived{Seq: m.Seq, Stored: m.Time, Lean: lean, Size: len(m.Data)}
	a.Partition, a.Key, a.Malformed = b.names.ParseQueue(m.Subject)
	if m.Unreadable && a.Malformed == nil {
		a.Malformed = errHeaderUnreadable
	}
	if lean {
		if size := serverSays(m.Header, headerSize); size != "" {
			a.Size, _ = strconv.Atoi(size)
			delete(m.Header, headerSize)
		}
	} else {
		a.Body = m.Data
	}
	delete(m.Header, headerNATSStatus)
	if len(m.Header) == 0 {
		m.Header = nil
	}
	a.parseHeader(m.Header)
	return a
}

// serverSays reads a header that the server adds to a stored message. It stands behind those of the publisher, who may have
// given one of the same name.
func serverSays(h nats.Header, name string) string {
	if values := h[name]; len(values) > 0 {
		return values[len(values)-1]
	}
	return ""
}

// unreadable reports whether a message had headers that the client could not decode, and so left out.
func unreadable(m *nats.Msg) bool {
	return m.Header == nil && m.Size() > len(m.Subject)+len(m.Reply)+len(m.Data)
}

// storedMessage reads a message from a stream's leader.
func (b *Broker) storedMessage(ctx context.Context, stream string, request any) (storedMessage, error) {
	var answer struct {
		Message struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Header  []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	if err := b.call(ctx, "$JS.API.STREAM.MSG.GET."+stream, request, &answer); err != nil {
		return storedMessage{}, translate(err)
	}
	m := storedMessage{Subject: answer.Message.Subject, Seq: answer.Message.Seq, Time: answer.Message.Time,
		Data: answer.Message.Data}
	if len(answer.Message.Header) > 0 {
		var err error
		m.Header, err = nats.DecodeHeadersMsg(answer.Message.Header)
		m.Unreadable = err != nil
	}
	return m, nil
}

// directGet reads a message from any replica. What it cannot make out, because the replica lags behind or the message is
// strange, is [ErrNotFound]: then the leader's word counts.
func (b *Broker) directGet(ctx context.Context, stream string, seq uint64) (storedMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	body := strconv.AppendUint([]byte(`{"seq":`), seq, 10)
	m, err := b.nc.RequestWithContext(ctx, "$JS.API.DIRECT.GET."+stream, append(body, '}'))
	if err != nil {
		return storedMessage{}, translate(err)
	}
	read, ok := readDirect(m)
	if !ok || read.Seq != seq {
		return storedMessage{}, fmt.Errorf("%w: status %.32q %.64q", ErrNotFound, m.Header.Get("Status"), m.Header.Get("Description"))
	}
	return read, nil
}

// readDirect reads the reply to a direct get.
func readDirect(m *nats.Msg) (storedMessage, bool) {
	stored, err := time.Parse(time.RFC3339Nano, serverSays(m.Header, "Nats-Time-Stamp"))
	subject := serverSays(m.Header, "Nats-Subject")
	seq, bad := strconv.ParseUint(serverSays(m.Header, "Nats-Sequence"), 10, 64)
	if err != nil || bad != nil || subject == "" {
		return storedMessage{}, false
	}
	for _, name := range []string{"Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp"} {
		delete(m.Header, name)
	}
	return storedMessage{Subject: subject, Seq: seq, Time: stored, Header: m.Header, Data: m.Data}, true
}
