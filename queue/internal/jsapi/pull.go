package jsapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/race"
)

const (
	pullHeartbeat = 500 * time.Millisecond
	pullExpires   = 5 * time.Second

	// pullSilence is how long no sign of life means that the consumer is gone. Most faults show in
	// other ways, and sooner; so this is long enough for a busy machine, where a rebuild would only
	// add to the load.
	pullSilence = 5 * pullHeartbeat * race.Slower

	// Two pulls are open at a time, so that the server always has one to serve while the next is
	// under way.
	PullBatch = 2048
	PullOpen  = 2 * PullBatch
	// pullSlack is room for heartbeats and time-outs while nobody reads.
	pullSlack = 256

	// SweepPatience is how long a consumer may deliver nothing although more is stored. One whose
	// leader is catching up looks for more when a pull begins, which is every pullExpires.
	SweepPatience = 2 * pullExpires

	// pullMaxBytes bounds what may wait in memory, unless single messages can be larger.
	pullMaxBytes = 8 << 20

	// PullHandOver is the most messages that are handed over at a time.
	PullHandOver = 512
)

var (
	ErrStopped     = errors.New("stopped")
	ErrSilence     = errors.New("no heartbeat")
	ErrReconnected = errors.New("connection lost")
	// ErrBehind is for callers that wait longer than SweepPatience.
	ErrBehind = errors.New("the consumer does not deliver what is stored")
)

// Delivery is a message with what the server says about it.
type Delivery struct {
	Message
	Pending uint64 // messages after this one that wait for the consumer
}

// Puller keeps pull requests open on one consumer and checks that nothing is missing from what
// comes. It speaks the protocol itself, because nats.go recovers silently from just those breaks
// after which an owner must start over, and because what arrives is wanted in batches. It is for
// one goroutine.
type Puller struct {
	nc       *nats.Conn
	sub      *nats.Subscription
	messages chan *nats.Msg
	Lost     chan nats.Status // the connection is lost
	next     string           // subject of pull requests
	inbox    string
	request  []byte
	silence  *time.Timer

	open     int    // messages asked for and neither delivered nor given back
	Received uint64 // last consumer sequence; of a former puller's, if set before the first Fetch
	promised uint64 // the consumer sequence that the last heartbeat spoke of

	WakeIdle bool // Fetch also returns, with nothing, when a heartbeat says that there is nothing
	idle     bool
}

func NewPuller(nc *nats.Conn, stream, consumer string) (*Puller, error) {
	request, err := json.Marshal(struct {
		Expires   time.Duration `json:"expires"`
		Batch     int           `json:"batch"`
		MaxBytes  int64         `json:"max_bytes"`
		Heartbeat time.Duration `json:"idle_heartbeat"`
	}{pullExpires, PullBatch, max(pullMaxBytes, 4*nc.MaxPayload()), pullHeartbeat})
	if err != nil {
		return nil, fmt.Errorf("encode pull request: %w", err)
	}
	p := &Puller{
		nc:       nc,
		messages: make(chan *nats.Msg, PullOpen+pullSlack),
		next:     "$JS.API.CONSUMER.MSG.NEXT." + stream + "." + consumer,
		inbox:    nc.NewInbox(),
		request:  request,
		silence:  time.NewTimer(pullSilence),
	}
	if p.sub, err = nc.ChanSubscribe(p.inbox, p.messages); err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	p.Lost = nc.StatusChanged(nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
	return p, nil
}

func (p *Puller) Stop() {
	_ = p.sub.Unsubscribe()
	p.nc.RemoveStatusListener(p.Lost)
	p.silence.Stop()
}

// Fetch appends what is there to batch, at most up to [PullHandOver], and waits for the first one.
// An error means that deliveries may be missing: nothing more can be had from this consumer. done
// ends the waiting with ErrStopped.
func (p *Puller) Fetch(done <-chan struct{}, batch []Delivery) ([]Delivery, error) {
	for {
		for p.open <= PullOpen-PullBatch {
			if err := p.nc.PublishRequest(p.next, p.inbox, p.request); err != nil {
				return nil, fmt.Errorf("pull: %w", err)
			}
			p.open += PullBatch
		}
		for len(batch) < PullHandOver {
			var m *nats.Msg
			select {
			case m = <-p.messages:
			default:
			}
			if m == nil {
				break
			}
			d, isMessage, err := p.take(m)
			if err != nil {
				return nil, err
			}
			if isMessage {
				batch = append(batch, d)
			}
		}
		if len(batch) > 0 {
			return batch, nil
		}
		if p.open <= PullOpen-PullBatch {
			continue // what came has ended pulls: ask before waiting
		}

		p.silence.Reset(pullSilence)
		select {
		case m := <-p.messages:
			d, isMessage, err := p.take(m)
			if err != nil {
				return nil, err
			}
			if isMessage {
				batch = append(batch, d)
			} else if p.idle && p.WakeIdle {
				return batch, nil
			}
		case <-p.silence.C:
			return nil, ErrSilence
		case <-p.Lost:
			return nil, ErrReconnected
		case <-done:
			return nil, ErrStopped
		}
	}
}

// take looks at one message from the server.
func (p *Puller) take(m *nats.Msg) (d Delivery, isMessage bool, err error) {
	if m == nil {
		return d, false, ErrReconnected // the connection is closed
	}
	if m.Reply == "" {
		return d, false, p.takeStatus(m)
	}
	meta, ok := parseAckSubject(m.Reply)
	if !ok {
		return d, false, fmt.Errorf("delivery with reply subject %q", m.Reply)
	}
	if meta.consumerSeq != p.Received+1 {
		return d, false, fmt.Errorf("gap in deliveries: got %d after %d", meta.consumerSeq,
			p.Received)
	}
	p.Received = meta.consumerSeq
	p.idle = false
	p.open--
	stored := Message{Subject: m.Subject, Seq: meta.streamSeq, Time: meta.stored, Header: m.Header,
		Unreadable: unreadable(m), Data: m.Data}
	return Delivery{stored, meta.pending}, true, nil
}

// takeStatus handles what the server says about a pull request or the consumer.
func (p *Puller) takeStatus(m *nats.Msg) error {
	status, description := m.Header.Get("Status"), m.Header.Get("Description")
	switch {
	case status == "100":
		return p.heartbeat(m)
	case status == "408",
		status == "409" &&
			(description == "Message Size Exceeds MaxBytes" || description == "Batch Completed"):
		rest, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages"))
		if err != nil {
			return fmt.Errorf("pull ended: %s %s", status, description)
		}
		p.open -= rest
		return nil
	}
	return fmt.Errorf("pull ended: %s %s", status, description)
}

// heartbeat compares what the consumer has delivered with what has come. Heartbeats follow
// deliveries, but on replicated streams a delivery waits for a quorum and can be overtaken; so what
// one heartbeat finds missing must have come by the next.
func (p *Puller) heartbeat(m *nats.Msg) error {
	delivered, err := strconv.ParseUint(m.Header.Get("Nats-Last-Consumer"), 10, 64)
	if err != nil {
		return nil
	}
	if p.promised > p.Received {
		return fmt.Errorf("lost deliveries: consumer is at %d, received %d", delivered, p.Received)
	}
	p.promised = delivered
	p.idle = delivered == p.Received
	return nil
}

// ackMeta is what the reply subject of a delivery says.
type ackMeta struct {
	streamSeq, consumerSeq, pending uint64
	stored                          time.Time
}

// parseAckSubject reads $JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer
// seq>.<time>.<pending>, and the form with <domain>.<account> before the stream and perhaps more
// tokens at the end.
func parseAckSubject(subject string) (ackMeta, bool) {
	rest, ok := strings.CutPrefix(subject, "$JS.ACK.")
	if !ok {
		return ackMeta{}, false
	}
	skip := 2
	if strings.Count(rest, ".") >= 8 {
		skip = 4
	}
	for range skip {
		_, rest, _ = strings.Cut(rest, ".")
	}
	var numbers [5]uint64
	for i := range numbers {
		var token string
		token, rest, _ = strings.Cut(rest, ".")
		n, err := strconv.ParseUint(token, 10, 64)
		if err != nil {
			return ackMeta{}, false
		}
		numbers[i] = n
	}
	return ackMeta{streamSeq: numbers[1], consumerSeq: numbers[2],
		stored:  time.Unix(0, int64(numbers[3])).UTC(),
		pending: numbers[4]}, true
}
