package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/admission/permits"
	"github.com/penstock-mq/penstock/internal/queue/jet"
)

const (
	callers  = 40
	callWait = 20 * time.Second
)

// beCaller is a process whose calls begin with permits.
func beCaller(natsURL, to, policy string) error {
	nc, err := nats.Connect(natsURL, nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	names, err := jet.NewNames("")
	if err != nil {
		return err
	}
	over, err := permits.New(nc, names)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &permits.Transport{Permits: over, Policy: policy,
		Call: func(*http.Request) permits.Request {
			return permits.Request{Key: key, Wait: callWait}
		}}}
	fmt.Println("ready")
	call(context.Background(), client, to)
	return nil
}

// call calls in parallel, again and again. A call that fails is made again after a moment.
func call(ctx context.Context, client *http.Client, to string) {
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for ctx.Err() == nil {
				if !once(ctx, client, to) {
					pause(ctx, 200*time.Millisecond)
				}
			}
		})
	}
	all.Wait()
}

func once(ctx context.Context, client *http.Client, to string) bool {
	ctx, cancel := context.WithTimeout(ctx, callWait+timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, to, nil)
	if err != nil {
		return false
	}
	a, err := client.Do(r)
	if err != nil {
		return false
	}
	defer a.Body.Close()
	_, err = io.Copy(io.Discard, a.Body)
	return err == nil && a.StatusCode == http.StatusOK
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
