package watch

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/queue"
)

func TestTheHottestKeysAreFoundAmongMany(t *testing.T) {
	w, _ := open(t)
	now := time.Unix(1_800_000_000, 0)
	w.now = func() time.Time { return now }
	all := func(string) bool { return true }
	if _, err := w.Stats(t.Context(), all, 0); err != nil {
		t.Fatal(err)
	}
	asked := map[string]int64{}
	for i := range 20_000 {
		key := fmt.Sprint("one of many ", i)
		switch {
		case i%10 == 0:
			key = "hot one"
		case i%20 == 1:
			key = "warm"
		}
		asked[key]++
		form, err := queue.EncodeKey(key)
		if err != nil {
			t.Fatal(err)
		}
		w.Take(queue.Event{Type: jet.EventChecked, Policy: "signup", Key: form,
			Value: jet.Whether(key != "hot one")})
		if i%5000 == 0 {
			w.mu.Lock()
			now = now.Add(10 * time.Second)
			w.mu.Unlock()
		}
	}
	s, err := w.Stats(t.Context(), all, 5)
	if err != nil || len(s.Policies) != 1 || len(s.Policies[0].Keys) != 5 {
		t.Fatalf("%+v, %v", s, err)
	}
	keys := s.Policies[0].Keys
	if keys[0].Key != "hot one" || keys[0].Refused != 2000 || keys[0].Allowed != 0 ||
		keys[1].Key != "warm" {
		t.Errorf("%+v", keys)
	}
	for _, k := range keys {
		if n := asked[k.Key]; counted(k) > n || counted(k)+k.More < n {
			t.Errorf("%+v asked %d times", k, n)
		}
	}
	for _, p := range w.figures["signup"].times {
		if h := p.checked; len(h.keys) > MostKeys || len(h.at) > MostKeys {
			t.Errorf("%d keys are known", len(h.keys))
		}
	}
	w.mu.Lock()
	now = now.Add(70 * time.Second)
	w.mu.Unlock()
	if s, err := w.Stats(t.Context(), all, 5); err != nil || len(s.Policies[0].Keys) > 0 {
		t.Errorf("after a minute %+v, %v", s, err)
	}
}
