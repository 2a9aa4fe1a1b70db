package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/internal/admission/access"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/embedded"
	"github.com/penstock-mq/penstock/workers"
)

func TestEveryChangeIsInTheAuditList(t *testing.T) {
	const token = "secret-of-ann"
	dir := t.TempDir()
	clients := filepath.Join(dir, "clients.yaml")
	if err := os.WriteFile(clients, []byte("clients:\n"+access.Line("ann",
		[]string{"submit", "read", "operate", "admin"}, []string{"*"}, nil, token)+"\n"+
		access.Line("team", []string{"read"}, []string{"mail"}, nil, "of-team")),
		0o600); err != nil {
		t.Fatal(err)
	}
	mail := paced("mail", 1000, 100)
	start := func() (p *penstock.Penstock, as func(token, method, path, body string,
		header ...string) string, stop func() error) {

		p = open(t, penstock.Options{Server: embedded.Options{Dir: filepath.Join(dir, "nats")},
			HTTP: penstock.HTTP{Tokens: clients}, Policies: []policy.Policy{mail}})
		p.Handle("mail", func(context.Context, workers.Job) error {
			return workers.Permanent(fmt.Errorf("no such address"))
		})
		stop = run(t, p)
		return p, func(token, method, path, body string, header ...string) string {
			t.Helper()
			status, answer := ask(t, p, method, path, body,
				append(header, "Authorization", "Bearer "+token)...)
			if status >= 300 {
				t.Fatalf("%s %s: %d %s", method, path, status, answer)
			}
			return answer
		}, stop
	}
	p, as, stop := start()
	waittest.Until(t, "the file's change is listed", func() bool {
		return strings.Contains(as(token, "GET", "/v1/audit", ""), "file of set default")
	})
	as(token, "PUT", "/v1/policies/other",
		`{"algorithm":"leaking_bucket","outflow":"1/h","capacity":9}`)
	as(token, "PATCH", "/v1/policies/other", `{"outflow":"2/h"}`)
	as(token, "PATCH", "/v1/policies/other", `{"outflow":"2/h"}`) // is no change
	as(token, "PATCH", "/v1/policies/other?dry_run=1", `{"outflow":"3/h"}`)
	as(token, "PUT", "/v1/policies/other/keys/a", `{"concurrency":2}`)
	as(token, "DELETE", "/v1/policies/other/keys/a", "")
	as(token, "POST", "/v1/pause/other/b", "")
	as(token, "POST", "/v1/pause/mail", "")
	as(token, "POST", "/v1/resume/mail", "")
	as(token, "POST", "/v1/schedules/mail/a", "x", "Penstock-Schedule", "@hourly")
	as(token, "POST", "/v1/schedules/mail/a", "y", "Penstock-Schedule", "@hourly")
	as(token, "PATCH", "/v1/schedules/mail/a?paused=1", "")
	as(token, "DELETE", "/v1/schedules/mail/a", "")
	as(token, "POST", "/v1/cancel/mail?tag=t", "")
	for range 2 {
		as(token, "POST", "/v1/jobs/mail/a", "x")
	}
	waittest.Until(t, "the jobs are dead", func() bool {
		return strings.Contains(as(token, "GET", "/v1/dead/mail", ""), `"id":2`)
	})
	as(token, "POST", "/v1/dead/mail/1/replay", "")
	as(token, "DELETE", "/v1/dead/mail/2", "")
	as(token, "DELETE", "/v1/dead/mail?through=9", "")
	as(token, "POST", "/v1/purge/other/a", "")
	as(token, "DELETE", "/v1/policies/other", "")
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	p.Close()

	p, as, _ = start()
	var list func(token, path string) []string
	list = func(token, path string) (lines []string) {
		t.Helper()
		text := as(token, "GET", path, "")
		if strings.Contains(text, "secret-of") {
			t.Errorf("a token shows: %s", text)
		}
		var page struct {
			Changes []struct {
				ID                     uint64
				By, From, What, Policy string
				Key                    *string
				Changed                []string
			}
			Next uint64
		}
		if err := json.Unmarshal([]byte(text), &page); err != nil {
			t.Fatal(err)
		}
		for _, c := range page.Changes {
			line := c.By + ": " + c.What + " " + c.Policy
			if c.Key != nil {
				line += "/" + *c.Key
			}
			lines = append(lines, line+" "+strings.Join(c.Changed, ", "))
			if c.By == "ann" && c.From == "" {
				t.Errorf("no address: %+v", c)
			}
		}
		if page.Next > 0 {
			first, _, _ := strings.Cut(path, "&")
			lines = append(lines, list(token, fmt.Sprintf("%s&before=%d", first, page.Next))...)
		}
		return lines
	}
	got := list(token, "/v1/audit?limit=4")
	want := []string{
		"ann: policy deleted through the API other name other, algorithm leaking_b",
		"ann: bucket purged other/a",
		"ann: dead letters discarded mail",
		"ann: dead letter discarded mail",
		"ann: dead letter replayed mail",
		"ann: jobs cancelled by their tag mail",
		"ann: schedule removed mail/a when @hourly → , paused true → false, bytes",
		"ann: schedule paused or resumed mail/a paused false → true",
		"ann: schedule written mail/a headers or body",
		"ann: schedule written mail/a when  → @hourly, bytes 0 → 1",
		"ann: policy paused or resumed mail paused true → false",
		"ann: policy paused or resumed mail paused false → true",
		"ann: override written through the API other/b paused false → true",
		"ann: override deleted through the API other/a concurrency 2 → the policy's",
		"ann: override written through the API other/a concurrency the policy's → 2",
		"ann: policy written through the API other outflow 1/h → 2/h",
		"ann: policy written through the API other name other, algorithm leaking_b",
		"file of set default: policy written by the file mail",
	}
	if len(got) != len(want) {
		t.Fatalf("%d changes:\n%s", len(got), strings.Join(got, "\n"))
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("%d: %s\nwant %s", i, got[i], want[i])
		}
	}
	if got := list("of-team", "/v1/audit/mail?limit=100"); len(got) != 11 {
		t.Errorf("of mail: %s", strings.Join(got, "\n"))
	}
	for _, path := range []string{"/v1/audit", "/v1/audit/other"} {
		status, body := ask(t, p, "GET", path, "", "Authorization", "Bearer of-team")
		if status != 403 {
			t.Errorf("%s for another's client: %d %s", path, status, body)
		}
	}
}
