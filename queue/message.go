package queue

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// arrived reads a stored message.
func (b *Broker) arrived(m *nats.Msg, seq uint64, stored time.Time, lean bool) Arrived {
	a := Arrived{Seq: seq, Stored: stored, Lean: lean, Size: len(m.Data)}
	a.Partition, a.Key, a.Malformed = b.names.ParseQueue(m.Subject)
	if lean {
		if size := m.Header.Get(headerSize); size != "" {
			a.Size, _ = strconv.Atoi(size)
			delete(m.Header, headerSize)
		}
	} else {
		a.Body = m.Data
	}
	if len(m.Header) == 0 {
		m.Header = nil
	}
	a.parseHeader(m.Header)
	return a
}

// storedMessage is a message as it lies in a stream.
type storedMessage struct {
	Subject string
	Seq     uint64
	Time    time.Time
	Header  nats.Header
	Data    []byte
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
		if m.Header, err = nats.DecodeHeadersMsg(answer.Message.Header); err != nil {
			return storedMessage{}, fmt.Errorf("read headers of message %d: %w", m.Seq, err)
		}
	}
	return m, nil
}

// directGet reads a message from any replica.
func (b *Broker) directGet(ctx context.Context, stream string, seq uint64) (*nats.Msg, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	body := strconv.AppendUint([]byte(`{"seq":`), seq, 10)
	m, err := b.nc.RequestWithContext(ctx, "$JS.API.DIRECT.GET."+stream, append(body, '}'))
	if err != nil {
		return nil, time.Time{}, translate(err)
	}
	subject := m.Header.Get("Nats-Subject")
	if subject == "" {
		status := m.Header.Get("Status")
		if status == "404" {
			return nil, time.Time{}, ErrNotFound
		}
		return nil, time.Time{}, fmt.Errorf("%w: status %s %s", ErrUnavailable, status, m.Header.Get("Description"))
	}
	stored, err := time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp"))
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	for _, name := range []string{"Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp", "Nats-Num-Pending",
		"Nats-Last-Sequence"} {
		delete(m.Header, name)
	}
	return &nats.Msg{Subject: subject, Header: m.Header, Data: m.Data}, stored, nil
}
