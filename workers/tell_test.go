package workers

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

const origin = pace.Instant(time.Hour)

// TestDeadLettersAreLoggedInSum: one line per policy every few seconds, however many letters there
// are, which counts all of them.
func TestDeadLettersAreLoggedInSum(t *testing.T) {
	var out bytes.Buffer
	l := tallies{log: slog.New(slog.NewTextHandler(&out, nil))}
	lines := func(now pace.Instant, end bool) string {
		out.Reset()
		l.tell(now, end)
		var told []string
		for line := range strings.Lines(out.String()) {
			_, line, _ = strings.Cut(line, "policy=")
			told = append(told, strings.Join(strings.Fields(line)[:2], " "))
		}
		return strings.Join(told, "; ")
	}
	bury := func(policy string, n int) {
		for range n {
			l.add(queue.DeadLetter{Policy: policy, Seq: 7, Reason: "permanent",
				Error: "target answered 404", Body: []byte("secret")}, 0)
		}
	}
	if got := lines(origin, false); got != "" {
		t.Errorf("told of nothing: %s", got)
	}
	bury("api", 1)
	for _, step := range []struct {
		at   time.Duration
		new  int
		end  bool
		want string
	}{
		{0, 0, false, "api letters=1"},
		{time.Millisecond, 1000, false, ""},
		{lettersEvery - 1, 500, false, ""},
		{lettersEvery, 0, false, "api letters=1500"},
		{lettersEvery + 1, 3, false, ""},
		{2 * lettersEvery, 0, false, "api letters=3"},
		{4 * lettersEvery, 0, false, ""},
		{4*lettersEvery + 1, 1, false, "api letters=1"},
		{4*lettersEvery + 2, 2, true, "api letters=2"},
	} {
		bury("api", step.new)
		if got := lines(origin.Add(step.at), step.end); got != step.want {
			t.Errorf("after %v: %q, want %q", step.at, got, step.want)
		}
	}
	bury("api", 1)
	bury("mail", 2)
	l.tell(origin.Add(time.Hour), false)
	if text := out.String(); !strings.Contains(text, "policy=mail letters=2 last_job=mail:7") ||
		!strings.Contains(text, `last_error="target answered 404"`) ||
		strings.Contains(text, "secret") {
		t.Errorf("told: %s", text)
	}
}
