package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

type burst struct {
	after time.Duration
	jobs  int
	gap   time.Duration // 0: all at once
}

type tally struct {
	submitted int
	allowed   int
	queued    int
	stored    int
	refused   int
	cameBack  int
	gaveUp    int
}

func (t tally) accepted() int { return t.allowed + t.queued + t.stored }

// traffic sends the jobs. HTTP clients retry after Retry-After; plain publishers are refused
// without a time.
type traffic struct {
	url    string
	client *http.Client
	js     jetstream.JetStream

	mu         sync.Mutex
	http, nats tally
	jobs       []string
	wait       time.Duration
	// announced for refused jobs
	soonest      time.Duration
	latest       time.Duration
	withoutRetry int
	failures     []error
	backlogFrom  time.Time
}

func newTraffic(url string, js jetstream.JetStream) *traffic {
	return &traffic{
		url: url + "/v1/jobs/" + policyName + "/" + string(bucketKey),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients,
			MaxConnsPerHost: clients},
			Timeout: 10 * time.Second},
		js: js,
	}
}

const clients = 32

func (t *traffic) send(ctx context.Context, trickle burst, bursts []burst) {
	began := time.Now()
	var senders sync.WaitGroup
	defer senders.Wait()
	for i := range trickle.jobs {
		if !sleep(ctx, time.Until(began.Add(trickle.after+time.Duration(i)*trickle.gap))) {
			return
		}
		if i%2 == 0 {
			senders.Go(func() { t.post(ctx) })
		} else {
			senders.Go(func() { t.publish(ctx, 1) })
		}
	}
	for i, b := range bursts {
		if !sleep(ctx, time.Until(began.Add(b.after))) {
			return
		}
		if i == 0 {
			t.count(func() { t.backlogFrom = time.Now() })
		}
		senders.Go(func() { t.publish(ctx, b.jobs/2) })
		senders.Go(func() { t.publishAlso(ctx, b.jobs) })
		for range b.jobs - b.jobs/2 {
			senders.Go(func() { t.post(ctx) })
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

func (t *traffic) post(ctx context.Context) {
	t.count(func() { t.http.submitted++ })
	for attempt := 0; ctx.Err() == nil; attempt++ {
		again, err := t.postOnce(ctx, attempt > 0)
		if err != nil {
			if ctx.Err() == nil {
				t.count(func() { t.failures = append(t.failures, err) })
			}
			return
		}
		if again == 0 || !sleep(ctx, again) {
			return
		}
	}
}

// postOnce returns the time until a retry; 0: accepted.
func (t *traffic) postOnce(ctx context.Context, cameBack bool) (again time.Duration, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url,
		strings.NewReader(`{"amount":1}`))
	if err != nil {
		return 0, err
	}
	response, err := t.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, fmt.Errorf("read the answer: %w", err)
	}
	var answer struct {
		Verdict string `json:"verdict"`
		Job     string `json:"job"`
		DelayMS int64  `json:"delay_ms"`
		RetryMS int64  `json:"retry_after_ms"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return 0, fmt.Errorf("answer %d %q: %w", response.StatusCode, body, err)
	}
	switch {
	case response.StatusCode == http.StatusAccepted && answer.Job != "":
		t.count(func() {
			t.accept(answer.Verdict, answer.Job, milliseconds(answer.DelayMS), cameBack)
		})
		return 0, nil
	case response.StatusCode == http.StatusTooManyRequests:
		seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
		t.count(func() { t.refuse(milliseconds(answer.RetryMS), err == nil && seconds > 0) })
		return time.Duration(max(seconds, 1)) * time.Second, nil
	}
	return 0, fmt.Errorf("answer %d %q", response.StatusCode, body)
}

func (t *traffic) accept(verdict, job string, delay time.Duration, cameBack bool) {
	if verdict == "allowed" {
		t.http.allowed++
	} else {
		t.http.queued++
	}
	if cameBack {
		t.http.cameBack++
	}
	t.wait = max(t.wait, delay)
	t.jobs = append(t.jobs, job)
}

func (t *traffic) refuse(retry time.Duration, told bool) {
	t.http.refused++
	t.soonest = min(cmp.Or(t.soonest, retry), retry)
	t.latest = max(t.latest, retry)
	if !told || retry <= 0 {
		t.withoutRetry++
	}
}

func (t *traffic) publish(ctx context.Context, jobs int) {
	subject := "penstock.jobs." + policyName + "." + string(bucketKey)
	var answers []jetstream.PubAckFuture
	for range jobs {
		answer, err := t.js.PublishAsync(subject, []byte(`{"amount":1}`))
		t.count(func() {
			t.nats.submitted++
			if err != nil {
				t.failures = append(t.failures, err)
			}
		})
		if err == nil {
			answers = append(answers, answer)
		}
	}
	for _, answer := range answers {
		select {
		case ack := <-answer.Ok():
			t.count(func() {
				t.nats.stored++
				t.jobs = append(t.jobs, fmt.Sprintf("%s:%d", policyName, ack.Sequence))
			})
		case err := <-answer.Err():
			t.count(func() {
				// Errors share a code and differ in their description.
				if strings.Contains(err.Error(), "maximum messages per subject exceeded") {
					t.nats.refused++
					t.nats.gaveUp++
				} else {
					t.failures = append(t.failures, err)
				}
			})
		case <-ctx.Done():
			return
		}
	}
}

// publishAlso publishes as many jobs to the bucket that counts from the start.
func (t *traffic) publishAlso(ctx context.Context, jobs int) {
	for range jobs {
		_, err := t.js.PublishAsync("penstock.jobs."+fromStart+"."+string(bucketKey), nil)
		if err != nil && ctx.Err() == nil {
			t.count(func() { t.failures = append(t.failures, err) })
		}
	}
}

func (t *traffic) count(change func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change()
}

func (t *traffic) totals() (all tally) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.http.plus(t.nats)
}

func (t *traffic) accepted() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.jobs...)
}

func (t tally) plus(u tally) tally {
	return tally{t.submitted + u.submitted, t.allowed + u.allowed, t.queued + u.queued,
		t.stored + u.stored,
		t.refused + u.refused, t.cameBack + u.cameBack, t.gaveUp + u.gaveUp}
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
