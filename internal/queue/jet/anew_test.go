package jet

import (
	"errors"
	"testing"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
)

func TestRevisionsContinueInARecreatedTable(t *testing.T) {
	b := newBroker(t)
	ctx, table := natstest.Context(t), b.Tables().Partitions
	if err := b.Apply(ctx, paced("api", 10, 1)); err != nil {
		t.Fatal(err)
	}
	var first uint64
	for range 10 {
		var err error
		if first, err = table.Put(ctx, "api.0", []byte("a"), first); err != nil {
			t.Fatal(err)
		}
	}
	old, err := b.OpenBacklog(ctx, BacklogOptions{Policy: "api", Partitions: 1, Epoch: first})
	if err != nil {
		t.Fatal(err)
	}
	if err := old.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if err := b.js.DeleteStream(ctx, "KV_"+table.Bucket()); err != nil {
		t.Fatal(err)
	}
	if err := b.Setup(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := table.Put(ctx, "api.0", []byte("b"), first); !errors.Is(err, ErrConflict) {
		t.Errorf("over a revision of the former table: %v, want ErrConflict", err)
	}
	second, err := table.Put(ctx, "api.0", []byte("b"), 0)
	if err != nil || second <= first {
		t.Errorf("revision %d after %d, %v", second, first, err)
	}
	l, err := b.OpenBacklog(ctx, BacklogOptions{Policy: "api", Partitions: 1, Epoch: second})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(ctx); err != nil {
		t.Error(err)
	}
}
