package core

import (
	"testing"

	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// A backlog opened for a partition given up in the same iteration would stay open, and this process
// would refuse questions to the owner.
func TestAPartitionThatIsGivenUpIsNotOpenedAgain(t *testing.T) {
	for name, loses := range map[string]func(c *Core, now pace.Instant){
		"handed over":   func(c *Core, now pace.Instant) { c.Handle(Stopped{}, now) },
		"declared dead": func(c *Core, now pace.Instant) { c.loseLease(now) },
	} {
		t.Run(name, func(t *testing.T) {
			c, part, now := ownerBench(t)
			heir(c, now)
			c.Handle(Connected{Up: true}, now)
			c.advance(now)
			answerPuts(c, now)
			if len(c.out.opens) != 1 || c.out.opens[0].Part != part.Partition {
				t.Fatalf("opens %v, want the partition", c.out.opens)
			}
			loses(c, now)
			c.advance(now)
			if part.Owned() || len(c.out.closes) != 1 || len(c.out.opens) != 0 {
				t.Errorf("owned: %v; closes %d and opens %d", part.Owned(), len(c.out.closes),
					len(c.out.opens))
			}
		})
	}
}
