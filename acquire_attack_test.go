package penstock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/admission/permits"
	"github.com/penstock-mq/penstock/internal/waittest"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/embedded"
)

// TestQuestionsOfCallersAreAnsweredWhateverTheySay asks over plain NATS, and finds no leaks.
func TestQuestionsOfCallersAreAnsweredWhateverTheySay(t *testing.T) {
	api := paced("api", 1000, 100)
	api.Partitions = 2
	p := open(t, penstock.Options{Policies: []policy.Policy{api}})
	run(t, p)
	nc, err := p.Connect("test")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	asked := func(partition int, question string) (string, error) {
		a, err := nc.Request(fmt.Sprintf("penstock.claim.api.%d", partition), []byte(question),
			waittest.Patience())
		if err != nil {
			return "", err
		}
		return string(a.Data), nil
	}
	eventually(t, "both partitions are owned", func() bool {
		_, first := asked(0, "")
		_, second := asked(1, "")
		return first == nil && second == nil
	})
	question := func(key, call, more string) string {
		return fmt.Sprintf(`{"v":1,"op":"claim","want":"permit","key":%q,"id":"x","n":1,`+
			`"partitions":2,"wait_ms":1000%s%s}`, key, call, more)
	}
	const never, begins = `"reason":"never"`, `"state":"go"`
	for i, x := range []struct{ question, answer string }{
		{`{`, "not JSON"},
		{`{"v":2,"op":"claim"}`, "format 2"},
		{`{"v":1,"op":"claim","key":"k"}`, never},
		{`{"v":1,"op":"purge","key":"k"}`, "want claim, progress, answered or settle"},
		{question("k", ``, `,"cost":NaN`), "not JSON"},
		{question("k", ``, `,"cost":1e99`), "not JSON"},
		{question("k", ``, `,"cost":9007199254740993`), never},
		{question("k", ``, `,"cost":-5,"priority":-9223372036854775808,"unknown":{}`), begins},
		{question("k", ``, `,"costs":{"tokens":0}`), never},
		{question("k", ``, `,"costs":{"tokens":9223372036854775807}`), never},
		{question("k", ``, `,"costs":{"":1}`), never},
		{question("k", ``, `,"costs":{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1}`), never},
		{question("free", `,"wait_ms":-1,"age_ms":-9223372036854775808`, ``), begins},
		{question("k", `,"wait_ms":9223372036854775807,"age_ms":9223372036854775807`, ``), begins},
		{question("k", `,"id":""`, ``), never},
		{question("k", `,"id":"`+strings.Repeat("x", 65)+`"`, ``), never},
		{question("%C3%BC", ``, ``), begins},
		{question("ü", ``, ``), never},
		{question("", ``, ``), never},
		{question(strings.Repeat("k", 900_000), ``, ``), never},
		{question("k", `,"partitions":-1`, ``), never},
		{question("k", `,"partitions":1`, ``), `"state":"moved"`},
	} {
		// The owner may learn of a start after its caller, and answers no question of an id twice.
		unique := strings.NewReplacer(`"id":"x"`, fmt.Sprintf(`"id":"x%d"`, i))
		var answers [2]string
		for partition := range answers {
			if answers[partition], err = asked(partition, unique.Replace(x.question)); err != nil {
				t.Fatalf("%.200s: %v", x.question, err)
			}
		}
		// No key has a bucket, and a rate, in two partitions.
		if n := strings.Count(answers[0]+answers[1], begins); x.answer == begins && n != 1 ||
			!strings.Contains(answers[0]+answers[1], x.answer) {
			t.Errorf("%.200s: %q", x.question, answers)
		}
		ended := `{"v":1,"op":"settle","key":"k","id":"x","n":2,"status":"returned"}`
		for partition := range answers {
			if _, err := asked(partition, unique.Replace(ended)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestWaitingCallersHearWhatBecomesOfTheirPolicy deletes and changes policies; callers get answers
// long before their wait ends.
func TestWaitingCallersHearWhatBecomesOfTheirPolicy(t *testing.T) {
	for name, x := range map[string]struct {
		change func(p *penstock.Penstock) (int, string)
		want   error
	}{
		"deleted": {func(p *penstock.Penstock) (int, string) {
			ask(t, p, "POST", "/v1/release/api", "")
			return ask(t, p, "DELETE", "/v1/policies/api", "")
		}, penstock.ErrUnknownPolicy},
		"paused": {func(p *penstock.Penstock) (int, string) {
			return ask(t, p, "POST", "/v1/pause/api", "")
		}, penstock.ErrPaused},
		"paused for a key": {func(p *penstock.Penstock) (int, string) {
			return ask(t, p, "POST", "/v1/pause/api/a", "")
		}, penstock.ErrPaused},
		"deleted and made anew": {func(p *penstock.Penstock) (int, string) {
			ask(t, p, "POST", "/v1/release/api", "")
			ask(t, p, "DELETE", "/v1/policies/api", "")
			return ask(t, p, "PUT", "/v1/policies/api",
				`{"algorithm":"leaking_bucket","outflow":"100/s","capacity":100}`)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := paced("api", 100, 100)
			api.Concurrency = 1
			p := open(t, penstock.Options{Policies: []policy.Policy{api}})
			run(t, p)
			call := penstock.Call{Policy: "api", Key: "a", Wait: permits.MaxWait}
			const waiters = 3
			heard := make(chan error, waiters)
			for range waiters + 1 {
				go func() {
					_, err := p.Acquire(t.Context(), call)
					heard <- err
				}()
			}
			if err := receive(t, heard); err != nil {
				t.Fatal(err)
			}
			waiting(t, p, "api", "a", waiters)
			if status, answer := x.change(p); status >= 300 {
				t.Fatal(status, answer)
			}
			for range waiters {
				err := receive(t, heard)
				meanwhile := x.want == nil && errors.Is(err, penstock.ErrUnknownPolicy)
				if !errors.Is(err, x.want) && !meanwhile {
					t.Errorf("%v, want %v", err, x.want)
				}
			}
		})
	}
}

// TestCallersOfAProcessThatStopsAreToldSo stops the callers' process; they leave the bucket, which
// another process owns.
func TestCallersOfAProcessThatStopsAreToldSo(t *testing.T) {
	api := paced("api", 100, 100)
	api.Concurrency = 1
	owner := open(t, penstock.Options{Policies: []policy.Policy{api},
		Server: embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"}})
	run(t, owner)
	if _, err := owner.Acquire(t.Context(), penstock.Call{Policy: "api", Key: "a"}); err != nil {
		t.Fatal(err)
	}
	front := open(t, penstock.Options{URL: owner.NATSURL(), DrainPolicies: []string{}})
	stop := run(t, front)
	server := httptest.NewServer(front.Handler())
	defer server.Close()
	answers := make(chan string, 2)
	go func() {
		_, err := front.Acquire(t.Context(),
			penstock.Call{Policy: "api", Key: "a", Wait: permits.MaxWait})
		answers <- fmt.Sprint(err)
	}()
	go func() {
		answer, err := http.Post(server.URL+"/v1/permits/api/a?wait=5m", "", nil)
		if err != nil {
			answers <- err.Error()
			return
		}
		defer answer.Body.Close()
		var body bytes.Buffer
		_, _ = body.ReadFrom(answer.Body)
		answers <- answer.Status + " " + body.String()
	}()
	waiting(t, owner, "api", "a", 2)
	if err := stop(); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	for range 2 {
		if a := receive(t, answers); !strings.Contains(a, "stopping") {
			t.Error(a)
		}
	}
	eventually(t, "nobody waits", func() bool {
		_, state := ask(t, owner, "GET", "/v1/buckets/api/a", "")
		return !strings.Contains(state, `"calls"`)
	})
}
