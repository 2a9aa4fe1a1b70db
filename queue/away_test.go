package queue

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/natstest"
	"github.com/penstock-mq/penstock/internal/waittest"
)

// TestOneOfThreeServersIsAway checks the number of copies, and lists dead letters, while one of
// three servers is down and after it came back.
func TestOneOfThreeServersIsAway(t *testing.T) {
	c := newCluster(t, false)
	b := c.broker
	apply(t, b, paced("stripe", 100, 1))
	const letters = 3
	for seq := range uint64(letters) {
		bury(t, b, DeadLetter{Policy: "stripe", Key: "k", Seq: seq + 1})
	}
	lacking := func(what string, want Copies) {
		t.Helper()
		waittest.Until(t, what, func() bool {
			s, err := b.Ration(natstest.Context(t))
			if err != nil {
				t.Log(err)
				return false
			}
			records := s.Copies["records"]
			return s.Copies["jobs"] == want && s.Copies["dead_letters"] == want &&
				(records.Lacking > 0) == (want.Lacking > 0) && records.Current == want.Current
		})
	}
	lacking("three copies are three", Copies{})
	c.stop(c.follower(b.names.Stream("stripe")))
	for range 60 {
		waittest.Until(t, "the letters are listed", func() bool {
			found, err := b.Letters("stripe").List(natstest.Context(t), 0, 10)
			if errors.Is(err, nats.ErrNoResponders) {
				t.Error(err)
			}
			return err == nil && len(found) == letters
		})
	}
	lacking("a copy of every stream is missed", Copies{Lacking: 1, Current: 2, Wanted: 3})
	for i := range c.servers {
		if !c.servers[i].Running() {
			c.start(i)
		}
	}
	lacking("three copies are three again", Copies{})
}
