package keyqueue

import (
	"math/rand/v2"
	"testing"
)

func TestArrivalsNeverStepBack(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	var a arrivals
	var stored, came []int64
	clock := int64(1e18)
	for seq := range uint64(20_000) {
		seq++
		if clock += int64(random.IntN(1000)); random.IntN(20) == 0 {
			clock -= int64(random.IntN(4000))
		}
		stored, came = append(stored, clock), append(came, a.came(seq, clock))
		if n := len(came); n > 1 && came[n-1] < came[n-2] || came[n-1] < clock {
			t.Fatalf("job %d of %d came at %d, behind %d", seq, clock, came[n-1], came[n-2])
		}
	}
	before := int64(0)
	for seq, at := range stored {
		got := a.came(uint64(seq)+1, at)
		if got < before || len(stored)-seq < 1000 && got != came[seq] {
			t.Fatalf("job %d came at %d, and is told %d, after %d", seq, came[seq], got, before)
		}
		before = got
	}
	if len(a.flats) != mostFlats {
		t.Errorf("%d are remembered", len(a.flats))
	}
}
