package jsapi

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/server/natsconn"
)

// A leader that is cut off answers these for ten seconds.
func TestOnlyWhatIsStoredEndsASilence(t *testing.T) {
	t.Parallel()
	c, err := New(natstest.New(t), "")
	if err != nil {
		t.Fatal(err)
	}
	c.Silence = natsconn.NewSilence(c.NATS, slog.New(slog.DiscardHandler),
		func(context.Context) {})
	c.Heard(time.Now(), true, nats.ErrNoResponders)
	waittest.Until(t, "a silence counts", func() bool {
		c.Heard(time.Now(), true, &Refusal{Code: 409, ErrorCode: codeDuplicateInFlight})
		c.Heard(time.Now(), true, &Refusal{Code: 400,
			ErrorCode: jetstream.JSErrCodeStreamWrongLastSequence})
		c.Heard(time.Now(), false, nil)
		return c.Silence.Lasts() >= natsconn.SilencePatience
	})
	c.Heard(time.Now(), true, nil)
	if lasts := c.Silence.Lasts(); lasts != 0 {
		t.Errorf("a write was stored, and the silence lasts %v", lasts)
	}
}
