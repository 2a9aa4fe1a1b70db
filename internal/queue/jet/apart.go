package jet

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/queue/kv"
)

// ErrApart: processes with this prefix can be reached that use another JetStream.
var ErrApart = errors.New("another installation with this prefix is connected")

// apart refuses a second installation in the reach of the first: on a leaf node with a JetStream of
// its own, tables and streams are made there, but requests and jobs go to both. Every process
// answers later ones.
type apart struct {
	nc       *nats.Conn
	names    Names
	policies *kv.Table

	mu        sync.Mutex
	answering *nats.Subscription // nil before answer
}

// apartWait is the time for processes elsewhere to answer. Without any, NATS says so at once.
const apartWait = 250 * time.Millisecond

func (n Names) installation() string { return n.lower + ".installation" }

// installation names the installation by the creation of its table of policies, which a restore
// keeps. Empty: there is none.
func (a *apart) installation(ctx context.Context) (string, error) {
	created, err := a.policies.Created(ctx)
	if errors.Is(err, ErrNoStream) {
		return "", nil
	}
	return strconv.FormatInt(created.UnixNano(), 10), err
}

func (a *apart) check(ctx context.Context) error {
	mine, err := a.installation(ctx)
	if err != nil {
		return err
	}
	others, err := a.nc.SubscribeSync(a.nc.NewInbox())
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	defer func() { _ = others.Unsubscribe() }()
	err = a.nc.PublishRequest(a.names.installation(), others.Subject, []byte(mine))
	wait, cancel := context.WithTimeout(ctx, apartWait)
	defer cancel()
	for err == nil {
		var m *nats.Msg
		if m, err = others.NextMsgWithContext(wait); err != nil || len(m.Data) == 0 {
			continue
		}
		if string(m.Data) != mine { // or was made meanwhile
			mine, err = a.installation(ctx)
		}
		if err == nil && string(m.Data) != mine {
			return fmt.Errorf("%w: its streams are in another JetStream than that of %s. On a "+
				"leaf node with its own JetStream set nats.domain to the domain of the streams; "+
				"two installations need different values of nats.prefix", ErrApart,
				a.nc.ConnectedUrlRedacted())
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	}
	return nil
}

func (a *apart) answer() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.answering != nil && a.answering.IsValid() {
		return nil
	}
	var err error
	a.answering, err = a.nc.Subscribe(a.names.installation(), func(m *nats.Msg) {
		if m.Reply == "" || !a.names.IsReply(m.Reply) {
			return
		}
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), apartWait)
			defer cancel()
			if mine, err := a.installation(ctx); err == nil && mine != "" {
				_ = m.Respond([]byte(mine)) // a lost answer is as none
			}
		}()
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}
