package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/cmd/penstock/internal/cli"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

func (i *installation) watching(args ...string) *proctest.Process {
	i.T.Helper()
	cmd := exec.Command(proctest.Program("penstock"), append(args, "--server", i.server)...)
	return proctest.Start(i.T, cmd)
}

func TestTailPrintsEvents(t *testing.T) {
	i := install(t, `
  - {name: mail, algorithm: leaking_bucket, outflow: 100/s, capacity: 100, target: {http: {url: `+
		newTarget(t, 200).URL+`}}}
  - {name: bad, algorithm: leaking_bucket, outflow: 100/s, capacity: 100, target: {http: {url: `+
		newTarget(t, 422).URL+`}}}
`, "--drain")
	all := i.watching("tail")
	dead := i.watching("tail", "bad", "--key", "a\x1bb", "--type", "dead", "--limit", "1", "--json")
	ended := make(chan string)
	go func() {
		defer close(ended)
		for l := range dead.Lines {
			ended <- l
		}
	}()
	seen := map[string]bool{}
	var last string
	for n := 0; last == "" || !seen["done"] || !seen["dead"]; n++ {
		i.Run(0, "submit", "mail", "x", "--key", "ann")
		i.Run(0, "submit", "bad", "x", "--key", "a\x1bb")
		select {
		case text, more := <-ended:
			if more {
				last = text
			}
		default:
		}
		for more := true; more; {
			select {
			case text := <-all.Lines:
				if words := words(text); len(words) > 3 {
					seen[words[1]] = true
				}
				if strings.Contains(text, "\x1b") {
					t.Fatalf("a terminal would obey %q", text)
				}
			default:
				more = false
			}
		}
	}
	var e event
	if err := json.Unmarshal([]byte(last), &e); err != nil || e.Type != "dead" ||
		e.Key != "a\x1bb" || e.Policy != "bad" || e.Reason != "permanent" {
		t.Errorf("the dead job's event is %s: %v", last, err)
	}
	if err := dead.End(); err != nil {
		t.Errorf("after its limit: %v", err)
	}
	if !seen["accepted"] || !seen["started"] || !seen["failed"] {
		t.Errorf("it printed %v", seen)
	}
	all.Signal(os.Interrupt)
	if err := all.End(); all.Cmd.ProcessState.ExitCode() != cli.Interrupted ||
		strings.Contains(all.Log.String(), "penstock:") {
		t.Errorf("interrupted: %v, %s", err, all.Log)
	}
	i.Says(2, words("tail --type dying"), "dying", "want one of accepted, started")
	i.Says(4, words("tail bed"), "did you mean bad?")
	i.Says(7, words("tail --server 127.0.0.1:1"), "no answer")
}

func TestTailGoesOnAfterALostConnection(t *testing.T) {
	asked := make(chan string, 10)
	server := flaky(t, func(n int, last string, say func(format string, args ...any)) {
		if n > 1 && n < 6 {
			panic(http.ErrAbortHandler)
		}
		asked <- last
		say("id: x-%d\nevent: done\ndata: {\"type\":\"done\",\"job\":\"mail:%[1]d\"}\n\n", n)
	})
	ctx, cancel := context.WithTimeout(t.Context(), proctest.Patience)
	defer cancel()
	var log bytes.Buffer
	a := &app{client: at(t, server).client(),
		Terminal: &cli.Terminal{Out: t.Output(), Err: &log}}
	var jobs []string
	err := a.follow(ctx, path("events"), func(e event) error {
		if jobs = append(jobs, e.Job); len(jobs) == 3 {
			return errEnough
		}
		return nil
	})
	if err != nil || fmt.Sprint(jobs) != "[mail:1 mail:6 mail:7]" {
		t.Errorf("it told of %v, %v", jobs, err)
	}
	if got := []string{<-asked, <-asked, <-asked}; fmt.Sprint(got) != "[ x-1 x-6]" {
		t.Errorf("it asked for what came after %q", got)
	}
	if said := log.String(); strings.Count(said, "; reconnecting\n") != 2 ||
		strings.Count(said, "penstock: connected again\n") != 2 || strings.Count(said, "\n") != 4 {
		t.Errorf("it said\n%s", said)
	}
}

func TestTopShowsPoliciesAndTheirDeepestBuckets(t *testing.T) {
	i := install(t, `
  - {name: mail, algorithm: leaking_bucket, outflow: 1/h, capacity: 3, target: {http: {url: `+
		newTarget(t, 200).URL+`}}}
  - {name: signup, algorithm: fixed_window, limit: 1, window: 1d}
`, "--drain")
	i.Run(0, words("top --once")...)
	i.Run(0, words("submit mail x --key big --wait 1m")...)
	for range 3 {
		i.Run(0, words("submit mail x --key big")...)
	}
	i.Run(3, words("submit mail x --key big")...)
	i.Run(0, words("check signup")...)
	i.Run(3, words("check signup")...)
	i.Until("big of mail  3", "top", "--once")
	i.Until("mail    ", "top", "--once")
	out := i.Run(0, "top", "--once")
	for _, want := range []string{"1/h", "rate until", "POLICY", "BUCKET", "1 in 1d",
		"hottest keys: ", "of signup 1 allowed 1 refused"} {
		if !strings.Contains(out, want) {
			t.Errorf("it prints\n%s\nwant %q in it", out, want)
		}
	}
	waittest.Until(t, "all is counted", func() bool {
		var s api.Stats
		i.Document(0, &s, "top")
		return len(s.Policies) == 2 && s.Policies[0].Refused == 1 && s.Policies[0].Accepted > 0 &&
			s.Policies[1].ChecksAllowed == 1 && s.Policies[1].ChecksRefused == 1
	})
}

func TestAViewFitsTheTerminal(t *testing.T) {
	v := &view{server: "http://x", at: time.Now(), limits: map[string]policyDocument{}}
	v.buckets.Unanswered = map[string][]int{"policy-1": {0}}
	v.buckets.Buckets = make([]api.PlacedBucket, 50)
	for n := range 50 {
		name := fmt.Sprintf("policy-%d", n)
		v.names = append(v.names, name)
		b := &v.buckets.Buckets[n]
		b.Policy, b.Key, b.Depth = name, strings.Repeat("k", 100), n
	}
	text := v.text(40, 20)
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) > 20 {
		t.Errorf("it has %d lines:\n%s", len(lines), text)
	}
	for _, l := range lines {
		if len([]rune(l)) > 40 {
			t.Errorf("too wide: %s", l)
		}
	}
}

func TestSparksAreAsHighAsTheirNumbers(t *testing.T) {
	for _, c := range []struct {
		numbers []int64
		columns int
		want    string
	}{
		{nil, 5, ""},
		{[]int64{0, 0, 0}, 5, ""},
		{[]int64{0, 1, 7, 9}, 5, "·▂█"},
		{[]int64{1, 1, 2, 2, 4, 4, 0}, 3, "▂▄█"},
		{[]int64{5}, 5, "█"},
	} {
		if got := sparks(c.numbers, c.columns); got != c.want {
			t.Errorf("%v: %q, want %q", c.numbers, got, c.want)
		}
	}
}

func TestAClientOfSomeKeysTailsTheirEvents(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path + r.URL.Query().Get("key") {
		case "/v1/eventstenant-1":
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "event: done\ndata: {\"type\":\"done\",\"job\":\"mail:7\"}\n\n")
		default:
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	t.Cleanup(server.Close)
	i := at(t, server.URL)
	i.Says(0, words("tail mail --key tenant-1 --limit 1"), "mail:7")
	i.Run(cli.Forbidden, words("tail mail --key tenant-2 --limit 1")...)
}
