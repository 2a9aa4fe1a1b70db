package forecast

import (
	"math/rand/v2"
	"testing"
)

func TestABucketTakesItsTurnsByWeight(t *testing.T) {
	w := Waits{Turn: 3, Weight: 2, Slots: 30, Jobs: 10} // jobs of 3 slots, 1.5 turns apart
	for _, c := range []struct {
		turn, from float64
		want       int64
	}{{2, 0, 0}, {3, 0, 3}, {4, 0, 3}, {4.5, 0, 6}, {100, 0, 30}, {4.5, 4, 3}, {4.5, 5, 0}} {
		if got := w.Until(c.turn, c.from); got != c.want {
			t.Errorf("until turn %v from %v: %d slots, want %d", c.turn, c.from, got, c.want)
		}
	}
	if got := (Waits{Turn: 1, Weight: 1}).Until(9, 0); got != 0 {
		t.Errorf("an empty bucket takes %d slots", got)
	}
}

// A forecast differs from the sum of all others by less than a job of each.
func TestAForecastIsNearTheSumOfOthers(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		f := &Forecast{From: 100 * random.Float64()}
		var all []Waits
		for range 200 {
			w := Waits{Turn: f.From + 20*random.Float64() - 10, Weight: 1 + random.Int64N(4),
				Jobs: random.Int64N(20)}
			w.Slots = w.Jobs * (1 + random.Int64N(3))
			all = append(all, w)
			f.Add(w, f.From)
		}
		f.Sum()
		asked := all[random.IntN(len(all))]
		slots := random.Int64N(1 + asked.Slots)
		turn := max(asked.Turn, f.From) + float64(slots)/float64(asked.Weight)
		exact, got := -asked.Until(turn, f.From), f.Before(turn, asked, slots)
		for _, w := range all {
			exact += w.Until(turn, f.From)
		}
		if off := float64(got - exact); off < -0.02*float64(exact)-3 ||
			off > 0.02*float64(exact)+2*float64(len(all)) {
			t.Fatalf("%d slots of others are told, want about %d", got, exact)
		}
	}
}
