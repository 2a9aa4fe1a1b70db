package jet

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/queue"
)

// Without a delimiter after the key, the second of these jobs was once taken for a repeat of the
// first, and never ran.
func TestTwoTenantsNeverShareAMessageID(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("slow", 10, 8))
	p := b.NewProducer(ProducerOptions{})
	first, err := p.Publish(natstest.Context(t),
		Submission{Policy: "slow", Key: "tenant", IdempotencyKey: "b/order-1"})
	if err != nil {
		t.Fatal(err)
	}
	other, err := p.Publish(natstest.Context(t),
		Submission{Policy: "slow", Key: "tenant/b", IdempotencyKey: "order-1"})
	if err != nil || other.Duplicate || other.Seq == first.Seq {
		t.Errorf("tenant/b's order-1 is %+v, %v after tenant's b/order-1 %+v", other, err, first)
	}
}

func TestTheHashOfAnIdempotencyKeyCannotBeForged(t *testing.T) {
	long := strings.Repeat("x", 300)
	sum := sha256.Sum256([]byte(long))
	if forged := "sha256:" + hex.EncodeToString(sum[:]); messageID("a", long) ==
		messageID("a", forged) {
		t.Errorf("%q is the id of %q too", messageID("a", long), forged)
	}
}

// Message ids of different pairs of bucket and Idempotency-Key differ from each other, from
// replays' and from chained jobs', and are valid header values.
func FuzzMessageIDsBelongToOneJob(f *testing.F) {
	f.Add("tenant", "b/order-1", "tenant/b", "order-1")
	f.Add("a", " b", "a b", "b")
	f.Add("a b", "c", "a", "b c")
	f.Add("", "x", "_", "x")
	f.Add("a", "sha256:00", "a", "sha256:00 ")
	f.Add("%!replay/1", "1", "%!job/x", "é\r\n")
	f.Fuzz(func(t *testing.T, rawKey, idempotency, otherRawKey, otherIdempotency string) {
		key, err := queue.EncodeKey(rawKey)
		if err != nil || idempotency == "" {
			return
		}
		other, err := queue.EncodeKey(otherRawKey)
		if err != nil || otherIdempotency == "" {
			return
		}
		id, otherID := messageID(key, idempotency), messageID(other, otherIdempotency)
		if same := key == other && idempotency == otherIdempotency; (id == otherID) != same {
			t.Errorf("bucket %q with %q is %q, bucket %q with %q is %q", key, idempotency, id,
				other, otherIdempotency, otherID)
		}
		chained := ChainedID("stripe", key, idempotency)
		if chained == ChainedID("stripe", other, otherIdempotency) && id != otherID {
			t.Errorf("%q and %q are chained as %q", id, otherID, chained)
		}
		if strings.HasPrefix(id, replayPrefix) || chained == id || chained == otherID ||
			strings.HasPrefix(chained, replayPrefix) {
			t.Errorf("%q is not a job's alone, or %q not a chained job's", id, chained)
		}
		for i := range len(id) {
			if c := id[i]; c < ' ' || c >= 0x7F || c == ' ' && (i == 0 || i == len(id)-1) {
				t.Errorf("%q does not survive a header line", id)
			}
		}
	})
}
