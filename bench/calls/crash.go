package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/proctest"
)

const (
	lease   = 5 * time.Second
	callers = 20
)

type drainer struct {
	http    string
	process *proctest.Process
}

func (d drainer) owns(ctx context.Context) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.http+"/metrics", nil)
	if err != nil {
		return false
	}
	a, err := pool.Do(r)
	if err != nil {
		return false
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	return err == nil &&
		strings.Contains(string(text), `penstock_partitions_owned{policy="paced"} 1`)
}

// crash kills the owner of a bucket with waiting calls, and returns the page's lines.
func crash(ctx context.Context, url string, drainers []drainer) (string, error) {
	for !drainers[0].owns(ctx) && !drainers[1].owns(ctx) {
		if err := ctx.Err(); err != nil {
			return "", err
		}
	}
	calling, stop := context.WithTimeout(ctx, settles+2*lease)
	defer stop()
	var mu sync.Mutex
	var longest time.Duration
	var answered, failed int
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for calling.Err() == nil {
				began := time.Now()
				err := get(ctx, url)
				mu.Lock()
				if longest = max(longest, time.Since(began)); err != nil {
					failed++
				} else {
					answered++
				}
				mu.Unlock()
			}
		})
	}
	select {
	case <-time.After(settles):
	case <-calling.Done():
	}
	for _, d := range drainers {
		if d.owns(ctx) {
			d.process.Kill()
			break
		}
	}
	all.Wait()
	return fmt.Sprintf("\nThe bucket's owner is killed (kill -9) while %d callers call; the lease "+
		"is %v. Of %d calls %d failed (wanted: none%s);\nthe longest took %.1f s (wanted: at most "+
		"the lease and 2 s%s).\n", callers, lease, answered+failed, failed, missed(failed > 0),
		longest.Seconds(), missed(longest > lease+2*time.Second)), nil
}
