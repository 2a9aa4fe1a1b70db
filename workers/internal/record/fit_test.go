package record

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestPackedSequencesRoundTrip(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var p, back packed
		seq := uint64(0)
		for range random.IntN(50) {
			seq += 1 + random.Uint64N(1<<random.IntN(56))
			p = append(p, seq)
		}
		text, err := p.MarshalText()
		if err == nil {
			err = back.UnmarshalText(text)
		}
		if err != nil || !slices.Equal(p, back) {
			t.Fatalf("%v became %v: %v", p, back, err)
		}
		most := random.IntN(200)
		some, size := p.within(most)
		if text, err = some.MarshalText(); err != nil || len(text) != size || size > most {
			t.Fatalf("%d of %d sequences take %d bytes, not %d of at most %d: %v", len(some),
				len(p), len(text), size, most, err)
		}
	}
	for _, text := range []string{"!", "gA", "////////////////"} {
		var p packed
		if err := p.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%s is read as %v", text, p)
		}
	}
}

// With a server's small messages, the handover still lists all running jobs, and the clocks that
// fit.
