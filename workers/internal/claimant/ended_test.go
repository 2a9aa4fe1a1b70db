package claimant

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/pace"
)

func TestTheLastIdsAreKnown(t *testing.T) {
	var n, heir Names
	now := pace.Instant(time.Hour)
	for i := range mostEnded + 10 {
		n.Add(fmt.Sprint(i), now)
		n.Add(fmt.Sprint(i), now)
	}
	if n.Has("9") || !n.Has("10") || !n.Has(fmt.Sprint(mostEnded+9)) || n.Has("another") {
		t.Error("other ids are known than the last ones")
	}
	heir.Inherit(n.Last(), now)
	if first := mostEnded + 10 - mostTold; heir.Has(fmt.Sprint(first-1)) ||
		!heir.Has(fmt.Sprint(first)) || len(heir.known) != mostTold {
		t.Errorf("%d are inherited", len(heir.known))
	}
	n.Add("later", now.Add(endedFor))
	if !n.Has("100") {
		t.Error("they are forgotten too early")
	}
	n.Add("latest", now.Add(endedFor+time.Second))
	if n.Has("100") || !n.Has("later") || len(n.order) != len(n.known) {
		t.Errorf("%d and %d ids are kept too long", len(n.order), len(n.known))
	}
}
