package watch

import (
	"context"
	"time"

	"github.com/penstock-mq/penstock/queue"
)

const (
	askEvery = 500 * time.Millisecond
	// Answers older than this are waited for.
	fresh = 5 * time.Second
	// Processes answer in a round trip; how many there are is unknown.
	answersIn = 100 * time.Millisecond
)

type others struct {
	queue.Recents
	at time.Time
}

// askOthers asks the other processes for their counts, and waits if the last ones are old.
func (w *Watch) askOthers(ctx context.Context) error {
	w.mu.Lock()
	now, _, err := w.asked()
	age := now.Sub(w.askedOthers)
	if err == nil && age >= askEvery {
		w.unasked, w.askedOthers = w.ask() != nil, now
	}
	w.mu.Unlock()
	if err != nil || age < fresh {
		return err
	}
	select {
	case <-time.After(answersIn):
	case <-ctx.Done():
	}
	return ctx.Err()
}

func (w *Watch) answered(all queue.Recents) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.others != nil {
		w.others[all.From] = others{all, w.now()}
	}
}
