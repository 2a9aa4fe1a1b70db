package admit_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
)

type verdict struct {
	N, Status    int
	Verdict, Job string
	Duplicate    bool
	RetryAfterMS int64 `json:"retry_after_ms"`
}

func (h *house) batch(lines ...string) (verdicts []verdict) {
	h.t.Helper()
	response, err := http.Post(h.url+"/v1/jobs:batch", "application/x-ndjson",
		strings.NewReader(strings.Join(lines, "\n")))
	if err != nil {
		h.t.Fatal(err)
	}
	defer response.Body.Close()
	for in := bufio.NewScanner(response.Body); in.Scan(); {
		var v verdict
		if err := json.Unmarshal(in.Bytes(), &v); err != nil {
			h.t.Fatalf("%s: %v", in.Text(), err)
		}
		verdicts = append(verdicts, v)
	}
	return verdicts
}

func TestEachJobOfABatchHasItsOwnVerdict(t *testing.T) {
	h := open(t, stripe, search, door)
	mail := func(key, headers string) string {
		return fmt.Sprintf(`{"policy":"stripe","key":%q,"headers":{%s},"text":"x"}`, key, headers)
	}
	find := func(key string) string { return fmt.Sprintf(`{"policy":"search","key":%q}`, key) }
	got := h.batch(
		mail("a", ""), mail("a", `"Idempotency-Key":"o-1"`), mail("a", ""), mail("a", ""),
		mail("a", `"Idempotency-Key":"o-1"`),
		mail("b", `"Penstock-Cost":"9"`), mail("b", ""),
		find("u"), find("u"), find("u"), find("u"),
		`{"policy":"door","key":"a"}`, `{"policy":"none","key":"a"}`, mail("c", ""))
	want := []int{202, 202, 202, 429, 202, 400, 202, 202, 202, 202, 429, 409, 404, 202}
	if len(got) != len(want) {
		t.Fatalf("%d verdicts, want %d: %+v", len(got), len(want), got)
	}
	for i, v := range got {
		if v.N != i+1 || v.Status != want[i] || v.Status == 202 && v.Verdict != "queued" ||
			v.Status == 429 && (v.Verdict != "rejected" || v.RetryAfterMS <= 0) {
			t.Errorf("job %d: %+v, want status %d", i+1, v, want[i])
		}
	}
	if !got[4].Duplicate || got[4].Job != got[1].Job {
		t.Errorf("the repeat of %+v got %+v", got[1], got[4])
	}
}

func TestABatchIsStoredInItsOrder(t *testing.T) {
	p := stripe
	p.Name, p.Capacity, p.Partitions = "order", 10_000, 1
	h := open(t, p)
	const jobs = 5000
	lines := make([]string, jobs)
	for i := range lines {
		lines[i] = fmt.Sprintf(`{"policy":"order","key":"k%d","body":%d}`, i%7, i)
	}
	got := h.batch(lines...)
	if len(got) != jobs {
		t.Fatalf("%d verdicts", len(got))
	}
	for i, v := range got {
		if v.N != i+1 || v.Job != job.ID("order", uint64(i+1)) {
			t.Fatalf("job %d is stored as %+v", i+1, v)
		}
	}
}

func TestABatchAsksNoValve(t *testing.T) {
	h := open(t, stripe)
	h.serveValves(stripe, func(q job.Question) job.Answer {
		t.Errorf("a valve was asked %+v", q)
		return job.Answer{}
	})
	if got := h.batch(`{"policy":"stripe","key":"a"}`); len(got) != 1 || got[0].Status != 202 {
		t.Errorf("got %+v", got)
	}
}

func TestABatchHasCostsByName(t *testing.T) {
	p := policy.Policy{Name: "llm", Rule: policy.Rule{Algorithm: policy.LeakingBucket,
		Capacity: 10}, Limits: policy.Limits{{Name: "tokens", Cost: "tokens", Rule: policy.Rule{
		Algorithm: policy.SlidingLog, Limit: 5000, Window: policy.Duration(time.Minute)}}}}
	h := open(t, p)
	line := func(headers string) string {
		return `{"policy":"llm","key":"a","headers":{` + headers + `}}`
	}
	got := h.batch(line(`"Penstock-Cost-Tokens":"1200"`), line(`"penstock-cost-tokens":"5001"`),
		line(`"Penstock-Cost-Tokns":"1"`), line(`"penstock-cost-tokens":"5000"`))
	for i, want := range []int{202, 400, 400, 202} {
		if len(got) != 4 || got[i].Status != want {
			t.Fatalf("%+v, want status %d of job %d", got, want, i+1)
		}
	}
	stream, err := h.client.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	for seq, want := range map[uint64]string{1: "1200", 2: "5000"} {
		m, err := stream.GetMsg("PENSTOCK_llm", seq)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Header.Get("Penstock-Cost-Tokens"); got != want {
			t.Errorf("job %d costs %q tokens, want %s", seq, got, want)
		}
	}
}
