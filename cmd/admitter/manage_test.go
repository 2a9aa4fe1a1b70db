package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

func operate[T any](p *process, method, path, body string, status int) T {
	p.t.Helper()
	r := p.ask(method, path, body)
	if r.status != status {
		p.t.Fatalf("%s %s: %d %s, want %d", method, path, r.status, r.body, status)
	}
	var document T
	if err := json.Unmarshal([]byte(r.body), &document); err != nil {
		p.t.Fatalf("%s %s: %s: %v", method, path, r.body, err)
	}
	return document
}

type bucketDocument struct {
	Key        string
	Depth      int
	Waiting    *int
	Paused     bool
	ETAMS      *int64 `json:"eta_ms"`
	Unanswered []int
}

type jobDocument struct {
	State    string
	Position *int
	ETAMS    *int64 `json:"eta_ms"`
}

// allowLoopback permits policies of the API to have targets on this machine.
const allowLoopback = "targets: {allow: [127.0.0.0/8]}\n"

func TestManage(t *testing.T) {
	var calls, refused atomic.Int64
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); string(body) == "bad" && refused.Add(1) == 1 {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		calls.Add(1)
	}))
	defer target.Close()
	p := launch(t, "--config", configure(t, allowLoopback), "--drain").ready()

	// A new policy takes jobs at once; an override and a pause apply at once.
	const document = `{"algorithm":"leaking_bucket","outflow":"%d/s","capacity":20,"partitions":2,` +
		`"target":{"http":{"url":%q}}}`
	operate[any](p, "PUT", "/v1/policies/acme", fmt.Sprintf(document, 1000, target.URL), 201)
	bucket := func(key string) bucketDocument {
		return operate[bucketDocument](p, "GET", "/v1/buckets/acme/"+key, "", 200)
	}
	eventually(t, "a drainer owns the partitions", func() bool {
		return bucket("a").Unanswered == nil && bucket("b").Unanswered == nil &&
			bucket("c").Unanswered == nil
	})
	operate[any](p, "POST", "/v1/pause/acme/a", "", 200)
	eventually(t, "the pause holds", func() bool { return bucket("a").Paused })
	var ids []string
	submit := func(key, body string) string {
		t.Helper()
		return operate[struct{ Job string }](p, "POST", "/v1/jobs/acme/"+key, body, 202).Job
	}
	for range 5 {
		ids = append(ids, submit("a", "x"))
	}
	submit("b", "x")
	eventually(t, "another bucket's job runs", func() bool { return calls.Load() == 1 })
	eventually(t, "the paused ones wait", func() bool {
		b := bucket("a")
		return b.Depth == 5 && b.Waiting != nil && *b.Waiting == 5 && b.ETAMS == nil
	})
	job := operate[jobDocument](p, "GET", "/v1/jobs/"+ids[3], "", 200)
	if job.State != "waiting" || job.Position == nil || *job.Position != 3 || job.ETAMS != nil {
		t.Errorf("a paused job: %+v", job)
	}
	list := operate[struct {
		Buckets []bucketDocument
		Total   int
	}](p, "GET", "/v1/buckets/acme", "", 200)
	if len(list.Buckets) != 1 || list.Total != 1 || list.Buckets[0].Key != "a" ||
		list.Buckets[0].Depth != 5 {
		t.Errorf("listed %+v", list)
	}

	if job := operate[jobDocument](
		p, "DELETE", "/v1/jobs/"+ids[0], "", 200); job.State != "cancelled" {
		t.Errorf("cancelled: %+v", job)
	}
	eventually(t, "the job is gone", func() bool {
		status, _ := p.get("/v1/jobs/" + ids[0])
		return status == 404
	})
	if job := operate[jobDocument](p, "GET", "/v1/jobs/"+ids[3], "", 200); job.Position == nil ||
		*job.Position != 2 {
		t.Errorf("after another was cancelled: %+v", job)
	}
	if purged := operate[struct{ Removed int }](p, "POST", "/v1/purge/acme/a", "",
		200); purged.Removed != 4 {
		t.Errorf("purged: %+v", purged)
	}
	eventually(t, "the bucket is empty", func() bool { return bucket("a").Depth == 0 })
	if dead := operate[struct{ Letters []any }](p, "GET", "/v1/dead/acme", "",
		200); len(dead.Letters) != 0 {
		t.Errorf("cancelled jobs left letters: %v", dead)
	}

	submit("a", "x")
	operate[any](p, "POST", "/v1/resume/acme/a", "", 200)
	eventually(t, "the resumed job ran", func() bool { return calls.Load() == 2 })

	// A policy's pause holds every bucket, and survives a change of the policy.
	operate[any](p, "POST", "/v1/pause/acme", "", 200)
	eventually(t, "the pause holds", func() bool { return bucket("c").Paused })
	submit("c", "x")
	operate[any](p, "PUT", "/v1/policies/acme", fmt.Sprintf(document, 500, target.URL), 200)
	if b := bucket("c"); !b.Paused || b.Depth != 1 {
		t.Errorf("paused: %+v", b)
	}
	operate[any](p, "POST", "/v1/resume/acme", "", 200)
	eventually(t, "the resumed job runs", func() bool { return calls.Load() == 3 })

	submit("d", "bad")
	var letters struct {
		Letters []struct {
			ID  uint64
			Key string
		}
	}
	eventually(t, "there is a dead letter", func() bool {
		_, text := p.get("/v1/dead/acme")
		return json.Unmarshal([]byte(text), &letters) == nil && len(letters.Letters) == 1
	})
	operate[any](p, "POST", fmt.Sprintf("/v1/dead/acme/%d/replay", letters.Letters[0].ID), "", 202)
	eventually(t, "the replayed job runs", func() bool { return calls.Load() == 4 })
	if dead := operate[struct{ Letters []any }](p, "GET", "/v1/dead/acme", "",
		200); len(dead.Letters) != 0 {
		t.Errorf("the letter is still there: %v", dead)
	}
	p.stop()
}

func TestChangesReachWaitingJobs(t *testing.T) {
	var atOld, atNew atomic.Int64
	counting := func(calls *atomic.Int64, status int) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			calls.Add(1)
			w.WriteHeader(status)
		}))
		t.Cleanup(server.Close)
		return server.URL
	}
	before, after := counting(&atOld, http.StatusOK), counting(&atNew,
		http.StatusInternalServerError)
	p := launch(t, "--config", configure(t, allowLoopback), "--drain").ready()
	put := func(target, retry string, status int) {
		t.Helper()
		operate[any](p, "PUT", "/v1/policies/acme",
			fmt.Sprintf(`{"algorithm":"leaking_bucket","outflow":"100/s","capacity":20,`+
				`"partitions":1,"target":{"http":{"url":%q}},"retry":{%s}}`, target, retry), status)
	}
	bucket := func() bucketDocument {
		return operate[bucketDocument](p, "GET", "/v1/buckets/acme/a", "", 200)
	}
	const patient = `"max_attempts":9,"backoff":"1h","max_backoff":"1h"`
	put(before, patient, 201)
	operate[any](p, "POST", "/v1/pause/acme", "", 200)
	eventually(t, "the pause holds", func() bool {
		b := bucket()
		return b.Unanswered == nil && b.Paused
	})
	job := operate[struct{ Job string }](p, "POST", "/v1/jobs/acme/a", "x", 202).Job
	put(after, patient, 200)
	operate[any](p, "POST", "/v1/resume/acme", "", 200)
	eventually(t, "the waiting job fails at the new target", func() bool {
		j := operate[struct {
			State    string
			Attempts int
		}](p, "GET", "/v1/jobs/"+job, "", 200)
		return j.State == "delayed" && j.Attempts == 1
	})
	if atOld.Load() != 0 || atNew.Load() != 1 {
		t.Errorf("the old target was called %d times, the new one %d times", atOld.Load(),
			atNew.Load())
	}

	operate[any](p, "POST", "/v1/pause/acme", "", 200)
	eventually(t, "the pause holds", func() bool { return bucket().Paused })
	operate[any](p, "POST", "/v1/jobs/acme/a", "y", 202)
	put(after, `"max_attempts":1`, 200)
	operate[any](p, "POST", "/v1/resume/acme", "", 200)
	type letters struct {
		Letters []struct {
			Reason   string
			Attempts int
		}
	}
	eventually(t, "the waiting job has used its attempts up", func() bool {
		dead := operate[letters](p, "GET", "/v1/dead/acme", "", 200).Letters
		return len(dead) == 1 && dead[0].Reason == "attempts" && dead[0].Attempts == 1
	})
	p.stop()
}

func TestAPolicyIsDeletedWithItsJobs(t *testing.T) {
	t.Parallel()
	running, finish := make(chan struct{}, 10), make(chan struct{})
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); string(body) == "bad" {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		running <- struct{}{}
		<-finish
	}))
	defer target.Close()
	p := launch(t, "--config", configure(t, allowLoopback), "--drain").ready()
	document := fmt.Sprintf(
		`{"algorithm":"leaking_bucket","outflow":"100/s","capacity":20,"partitions":2,"concurrency":1,`+
			`"target":{"http":{"url":%q}},"retry":{"backoff":"1h"}}`, target.URL)
	operate[any](p, "PUT", "/v1/policies/acme", document, 201)
	for range 3 {
		operate[any](p, "POST", "/v1/jobs/acme/a", "x", 202)
	}
	operate[any](p, "POST", "/v1/jobs/acme/b", "bad", 202)
	<-running
	bucket := func(key string) bucketDocument {
		return operate[bucketDocument](p, "GET", "/v1/buckets/acme/"+key, "", 200)
	}
	eventually(t, "one waits for its retry and two for their turn", func() bool {
		b := bucket("b")
		return b.Waiting != nil && *b.Waiting == 0 && b.Depth == 1 && bucket("a").Depth == 3
	})
	type drainers struct {
		Drainers []struct {
			Alive    bool
			Version  string
			Policies map[string]struct {
				Owned   []int
				Workers int
				Busy    int
			}
		}
	}
	eventually(t, "the drainer says that a worker is busy", func() bool {
		told := operate[drainers](p, "GET", "/v1/drainers", "", 200).Drainers
		return len(told) == 1 && told[0].Alive && told[0].Version != "" &&
			len(told[0].Policies["acme"].Owned) == 2 &&
			told[0].Policies["acme"].Workers == 64 && told[0].Policies["acme"].Busy == 1
	})

	type deletion struct {
		Deleted       bool
		Removed, Jobs int
	}
	if d := operate[deletion](p, "DELETE", "/v1/policies/acme", "",
		202); d != (deletion{false, 0, 4}) {
		t.Errorf("deleted: %+v", d)
	}
	operate[any](p, "POST", "/v1/jobs/acme/a", "x", 404)
	operate[any](p, "PUT", "/v1/policies/acme", document, 200)
	operate[any](p, "POST", "/v1/jobs/acme/a", "x", 202)
	if d := operate[deletion](
		p, "DELETE", "/v1/policies/acme?purge=1", "", 202); d != (deletion{false, 4, 1}) {
		t.Errorf("deleted: %+v", d)
	}
	operate[any](p, "POST", "/v1/jobs/acme/a", "x", 404)
	close(finish)
	eventually(t, "the policy goes with its last job", func() bool {
		status, _ := p.get("/v1/policies/acme")
		return status == 404
	})
	if dead := operate[struct{ Policies []any }](p, "GET", "/v1/policies", "",
		200); len(dead.Policies) != 0 {
		t.Errorf("left: %v", dead)
	}

	// A new policy of the same name starts empty, and its jobs run.
	operate[any](p, "PUT", "/v1/policies/acme",
		strings.Replace(document, `"partitions":2`, `"partitions":1`, 1), 201)
	for range 5 {
		operate[any](p, "POST", "/v1/jobs/acme/a", "x", 202)
	}
	for n := range 5 {
		select {
		case <-running:
		case <-time.After(waittest.Patience()):
			t.Fatalf("only %d jobs ran", n)
		}
	}
	eventually(t, "the bucket is empty", func() bool { return bucket("a").Depth == 0 })
	p.stop()
}

func TestResumeEndsAPauseThatTheTargetAskedFor(t *testing.T) {
	var calls atomic.Int64
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) <= 2 {
			w.Header().Set("Retry-After", "3000")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer target.Close()
	p := launch(t, "--config", configure(t, allowLoopback), "--drain").ready()
	operate[any](p, "PUT", "/v1/policies/acme", fmt.Sprintf(`{"algorithm":"leaking_bucket",`+
		`"outflow":"100/s","capacity":20,"partitions":2,"target":{"http":{"url":%q}}}`,
		target.URL), 201)
	type resumed struct {
		Ended      int `json:"cooldowns_ended"`
		Unanswered []int
	}
	throttled := func(calledBefore int64) {
		t.Helper()
		eventually(t, "the target asks for a pause", func() bool {
			return calls.Load() > calledBefore && operate[struct {
				By string `json:"blocked_by"`
			}](p, "GET", "/v1/buckets/acme/a", "", 200).By == "throttled_by_target"
		})
	}
	operate[any](p, "POST", "/v1/jobs/acme/a", "x", 202)
	throttled(0)
	if r := operate[resumed](p, "POST", "/v1/resume/acme/a", "", 200); r.Ended != 1 ||
		r.Unanswered != nil {
		t.Errorf("a key is resumed: %+v", r)
	}
	throttled(1)
	if r := operate[resumed](p, "POST", "/v1/resume/acme", "", 200); r.Ended != 1 ||
		r.Unanswered != nil {
		t.Errorf("the policy is resumed: %+v", r)
	}
	eventually(t, "the job is done", func() bool {
		status, _ := p.get("/v1/buckets/acme/a")
		return calls.Load() == 3 && status == 200
	})
	var noted []string
	for _, c := range operate[struct {
		Changes []struct {
			What string
			Key  string
		}
	}](p, "GET", "/v1/audit/acme", "", 200).Changes {
		if strings.HasPrefix(c.What, "cool-down") {
			noted = append(noted, c.What+" "+c.Key)
		}
	}
	if fmt.Sprint(noted) != "[cool-down ended  cool-down ended a]" {
		t.Errorf("the audit list has %q", noted)
	}
	p.stop()
}
