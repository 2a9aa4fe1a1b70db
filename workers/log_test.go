package workers

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/policy"
)

func TestEachStartAndEndIsALineThatNamesTheJob(t *testing.T) {
	p := leaky("api", "100/s")
	p.Retry.Backoff = policy.Duration(time.Millisecond)
	b := newBench(t, p)
	out := &waittest.Log{}
	stop := b.drain(Options{
		Logger: slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug}))},
		map[string]Handler{"api": func(_ context.Context, job Job) error {
			if job.Attempt == 1 {
				return errors.New("not yet")
			}
			return nil
		}})
	b.publish("api", "tenant%207", 0, 1)
	b.empty("api")
	stop()
	var lines []string
	for line := range strings.Lines(out.String()) {
		var r struct {
			Msg, Policy, Job, Key, Outcome, Error string
			Attempt                               int
			Wait, Took                            *int64
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r.Msg != "start" && r.Msg != "end" {
			continue
		}
		if r.Policy != "api" || r.Job != "api:1" || r.Key != "tenant 7" ||
			(r.Msg == "start") != (r.Wait != nil) ||
			(r.Msg == "end") != (r.Took != nil) || strings.Contains(line, `"error":""`) {
			t.Errorf("got %s", line)
		}
		lines = append(lines,
			strings.TrimSpace(
				strings.Join([]string{r.Msg, string(rune('0' + r.Attempt)), r.Outcome, r.Error},
					" ")))
	}
	if got, want := strings.Join(lines,
		"\n"), "start 1\nend 1 failed not yet\nstart 2\nend 2 done"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
