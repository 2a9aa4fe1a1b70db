package queue

import (
	"errors"
	"testing"
	"time"
)

// A broken backlog does not wait for confirmations, but what is finished has been sent when it is closed: also what had
// no place among those that wait for theirs.
func TestABrokenBacklogSendsAllAcknowledgementsAtItsEnd(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 10, 1))
	publish(t, b, "stripe", "a", 1)
	l := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1})
	receive(t, l, 1)
	l.acks.mu.Lock()
	for seq := range uint64(ackWindow) {
		l.acks.sent[1000+seq] = time.Now()
	}
	l.acks.mu.Unlock()
	l.Done(1)
	l.fail(errors.New("deliveries may be missing"))
	if err := l.Close(testContext(t)); err == nil {
		t.Error("unconfirmed acknowledgements are not told")
	}
	eventually(t, "the job is acknowledged", func() bool {
		n, err := b.Depth(testContext(t), "stripe")
		return err == nil && n == 0
	})
}
