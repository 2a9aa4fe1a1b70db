package jsapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	pullHeartbeat = 500 * time.Millisecond
	pullExpires   = 5 * time.Second

	// With two open pulls the server always has one to serve.
	PullBatch = 2048
	PullOpen  = 2 * PullBatch
	// pullSlack is room for heartbeats.
	pullSlack = 256

	// SweepPatience bounds the time that a consumer withholds stored messages. A leader that
	// catches up looks for more at the start of each pull.
	SweepPatience = 2 * pullExpires

	// pullMaxBytes bounds the bytes in memory, unless messages can be larger.
	pullMaxBytes = 8 << 20

	// PullHandOver bounds one result of Fetch.
	PullHandOver = 512
)

var (
	ErrStopped     = errors.New("stopped")
	ErrSilence     = errors.New("no heartbeat")
	ErrReconnected = errors.New("connection lost")
	// ErrBehind: the caller waited longer than SweepPatience.
	ErrBehind = errors.New("the consumer does not deliver what is stored")
)

type Delivery struct {
	Message
	Pending uint64 // later messages for the consumer
}

// Puller keeps pull requests open on one consumer and checks that no delivery is missing: nats.go
// silently recovers from breaks, and then an owner must start over. It must not be used
// concurrently.
type Puller struct {
	nc       *nats.Conn
	sub      *nats.Subscription
	messages chan *nats.Msg
	Lost     chan nats.Status
	next     string
	inbox    string
	request  []byte
	// hears of missing heartbeats
	unanswered func(since time.Time)
	silence    *time.Timer
	open       int    // pulls in flight
	Received   uint64 // consumer sequence; preset to continue a former puller
	promised   uint64 // by the last heartbeat

	// Single keeps one pull open instead of two, which takes half of the heartbeats.
	Single   bool
	WakeIdle bool // Fetch returns an empty batch if no message is pending
	// After Patience without a message, by default 2.5 s, the consumer counts as gone. Most faults
	// show sooner.
	Patience time.Duration
	idle     bool
}

func NewPuller(c *Conn, stream, consumer string) (*Puller, error) {
	nc := c.NATS
	request, _ := json.Marshal(struct {
		Expires   time.Duration `json:"expires"`
		Batch     int           `json:"batch"`
		MaxBytes  int64         `json:"max_bytes"`
		Heartbeat time.Duration `json:"idle_heartbeat"`
	}{pullExpires, PullBatch, max(pullMaxBytes, 4*nc.MaxPayload()), pullHeartbeat})
	var err error
	p := &Puller{
		nc:         nc,
		messages:   make(chan *nats.Msg, PullOpen+pullSlack),
		next:       c.API("$JS.API.CONSUMER.MSG.NEXT." + stream + "." + consumer),
		inbox:      nc.NewInbox(),
		request:    request,
		silence:    time.NewTimer(time.Hour),
		unanswered: c.Silence.Unanswered,
		Patience:   c.Timeout * 5 / 4,
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

// Fetch appends messages to batch, up to [PullHandOver] in total, and waits for the first. After an
// error deliveries may be missing; done ends the wait with ErrStopped.
func (p *Puller) Fetch(done <-chan struct{}, batch []Delivery) ([]Delivery, error) {
	enough := PullOpen - PullBatch
	if p.Single {
		enough = 0
	}
	for {
		for p.open <= enough {
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
		if p.open <= enough {
			continue // ask for more before waiting
		}

		p.silence.Reset(p.Patience)
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
			p.unanswered(time.Now().Add(-p.Patience))
			return nil, ErrSilence
		case <-p.Lost:
			return nil, ErrReconnected
		case <-done:
			return nil, ErrStopped
		}
	}
}

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

// A replicated delivery waits for a quorum. Meanwhile one heartbeat may overtake it, but not two.
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

type ackMeta struct {
	streamSeq, consumerSeq, pending uint64
	stored                          time.Time
}

// parseAckSubject parses $JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer
// seq>.<time>.<pending>, also with <domain>.<account> before the stream and more tokens at the end.
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
		stored: time.Unix(0, int64(numbers[3])).UTC(), pending: numbers[4]}, true
}
