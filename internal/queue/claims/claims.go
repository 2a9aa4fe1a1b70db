// Package claims is the client's side of docs/workers-protocol.md over NATS: a claimant asks a
// valve for a start, and reports how it goes.
package claims

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/queue/job"
)

const (
	// Patience is the time to wait for an answer before a message is repeated.
	Patience = time.Second
	// Pause comes before a claim is repeated, if no process owns the partition.
	Pause = 100 * time.Millisecond

	mostUnread = 8
)

// Client receives the turns of any number of claimants at one inbox. It is safe for concurrent use.
type Client struct {
	nc    *nats.Conn
	inbox string
	sub   *nats.Subscription
	close chan struct{}
	once  sync.Once // closes it

	mu        sync.Mutex
	claimants map[string]chan<- *Turn // by token
	opened    uint64
}

// New returns a client, which subscribes to its inbox.
func New(nc *nats.Conn) (*Client, error) {
	c := &Client{nc: nc, inbox: nc.NewInbox() + ".", close: make(chan struct{}),
		claimants: map[string]chan<- *Turn{}}
	var err error
	if c.sub, err = nc.Subscribe(c.inbox+"*", c.hear); err != nil {
		return nil, fmt.Errorf("subscribe for turns: %w", err)
	}
	return c, nil
}

// Close may be repeated.
func (c *Client) Close() {
	c.once.Do(func() { close(c.close) })
	_ = c.sub.Unsubscribe() // the connection may be closed already
}

// Closed is closed by Close.
func (c *Client) Closed() <-chan struct{} { return c.close }

// Turn is a valve's answer.
type Turn struct {
	job.Turn
	Number int    // of the claim that it answers
	Nobody bool   // no process heard the claim
	To     string // where reports of a job go
	Header nats.Header
	Body   []byte
}

// The subject's last token is that of the claimant and the number of the claim.
func (c *Client) hear(m *nats.Msg) {
	name := strings.TrimPrefix(m.Subject, c.inbox)
	end := max(0, strings.LastIndexByte(name, '-'))
	token, number := name[:end], strings.TrimPrefix(name[end:], "-")
	t := Turn{Nobody: len(m.Data) == 0 && m.Header.Get("Status") == "503", To: m.Reply}
	t.Number, _ = strconv.Atoi(number)
	if !t.Nobody {
		var err error
		text, body := job.Carried(m.Header, m.Data)
		if t.Turn, err = job.ReadTurn(text); err != nil {
			t.Turn = job.Turn{State: job.TurnError, Error: err.Error()}
		}
		t.Header, t.Body = m.Header, body
	}
	c.mu.Lock()
	turns := c.claimants[token]
	select {
	case turns <- &t: // under the lock: Close finds it
	default:
	}
	c.mu.Unlock()
	if turns == nil {
		id, _, _ := strings.Cut(token, "-")
		c.giveBack(id, &t)
	}
}

// giveBack returns a job that no claimant waits for any longer: it would run into its time-out.
func (c *Client) giveBack(id string, t *Turn) {
	if t.To == "" {
		return
	}
	m, err := message(t.To, job.Claim{V: job.FormatVersion, Op: job.OpSettle, ID: id,
		N: t.Number + 1, Settlement: job.Settlement{Status: job.SettledReturned}})
	if err == nil {
		_ = c.nc.PublishMsg(m) // a closed connection: the valve finds no responder
	}
}

// Claimant is one that waits for a start, or has begun.
type Claimant struct {
	ID    string
	Turns <-chan *Turn
	At    time.Time // before its latest message was sent

	of    *Client
	token string // of those with this ID, who may report at the same time
	n     int
}

// Open begins to receive turns for an id, until [Claimant.Close].
func (c *Client) Open(id string) *Claimant {
	turns := make(chan *Turn, mostUnread)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opened++
	token := id + "-" + strconv.FormatUint(c.opened, 36)
	c.claimants[token] = turns
	return &Claimant{ID: id, Turns: turns, of: c, token: token}
}

// Close ends it. A job whose turn was not read, or comes later, goes back to its valve.
func (k *Claimant) Close() {
	k.of.mu.Lock()
	delete(k.of.claimants, k.token)
	k.of.mu.Unlock()
	for {
		select {
		case t := <-k.Turns:
			k.of.giveBack(k.ID, t)
		default:
			return
		}
	}
}

// Latest makes the number of the next message exceed those of another process with the same id.
func (k *Claimant) Latest() { k.n = 1 << 30 }

// Answers reports whether a turn answers the latest message: that withdrew earlier claims.
func (k *Claimant) Answers(t *Turn) bool { return t.Number == k.n }

// Send sends the claimant's next message to a valve. The reply of a settlement travels as the
// message's payload. An error means that the connection is closed or its buffer is full.
func (k *Claimant) Send(to string, c job.Claim) error {
	k.n++
	k.At = time.Now()
	c.V, c.ID, c.N = job.FormatVersion, k.ID, k.n
	m, err := message(to, c)
	if err != nil {
		return err
	}
	m.Reply = k.of.inbox + k.token + "-" + strconv.Itoa(k.n)
	return k.of.nc.PublishMsg(m)
}

func message(to string, c job.Claim) (*nats.Msg, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode a claim: %w", err)
	}
	m := nats.NewMsg(to)
	if m.Data = text; c.Reply != nil {
		m.Data, m.Header[job.HeaderTurn] = c.Reply.Body, []string{string(text)}
	}
	return m, nil
}

// Tell sends a report until it is answered, and returns the answer. If the partition has another
// owner, moved returns when to repeat it, and to its subject. It fails when the context ends.
func (k *Claimant) Tell(ctx context.Context, to func() string, c job.Claim,
	moved func(job.Turn) time.Duration) (job.Turn, error) {

	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case t := <-k.Turns:
			switch {
			case !k.Answers(t):
			case t.Nobody:
				again.Reset(Pause)
			case t.State == job.TurnMoved:
				again.Reset(moved(t.Turn))
			default:
				return t.Turn, nil
			}
		case <-again.C:
			_ = k.Send(to(), c) // the timer repeats it
			again.Reset(Patience)
		case <-k.of.close:
			return job.Turn{}, nats.ErrConnectionClosed
		case <-ctx.Done():
			return job.Turn{}, ctx.Err()
		}
	}
}
