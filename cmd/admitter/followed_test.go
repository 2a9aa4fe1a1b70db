package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-mq/penstock/queue"
)

func TestFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f followed
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.wait(t.Context(), "a", 5)
		}()
		for _, set := range []queue.PolicySet{{"b": {Revision: 7}}, {"a": {Revision: 4}}} {
			synctest.Wait()
			f.set(set)
		}
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("went on too early")
		default:
		}
		f.set(queue.PolicySet{"a": {Revision: 6}})
		<-done
		f.wait(t.Context(), "a", 6)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		f.wait(ctx, "a", 7)
		if took := time.Since(began); took != time.Second {
			t.Errorf("waited %s for what never came", took)
		}
	})
}
