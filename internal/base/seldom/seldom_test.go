package seldom_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-mq/penstock/internal/base/seldom"
)

func TestRepeatedLinesAreSuppressed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := seldom.New(slog.New(slog.NewTextHandler(&out, nil)))
		for range 100 {
			l.Log("a", slog.LevelWarn, "of a")
			l.Log("b", slog.LevelWarn, "of b")
			l.Log("a", slog.LevelDebug, "of a")
			time.Sleep(time.Second)
		}
		text := out.String()
		if a, b := strings.Count(text, "of a"), strings.Count(text, "of b"); a != 10 || b != 10 {
			t.Errorf("%d and %d lines in a hundred seconds, want 10 each", a, b)
		}
		if n := strings.Count(text, "left_out=9"); n != 18 {
			t.Errorf("%d lines say that nine were left out, want all but the first two:\n%s", n,
				text)
		}
	})
}

// The last line of a subject is written late, with the number of omitted ones.
func TestTheLastLineIsNotLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := seldom.New(slog.New(slog.NewTextHandler(&out, nil)))
		says := func(want string) {
			t.Helper()
			var got []string
			for line := range strings.Lines(out.String()) {
				_, line, _ = strings.Cut(line, "msg=")
				got = append(got, strings.TrimSpace(line))
			}
			if out.Reset(); strings.Join(got, "; ") != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
		for i := range 1500 {
			l.Log("api", slog.LevelWarn, "letter", "job", i)
		}
		l.Flush(false)
		says("letter job=0")
		time.Sleep(10 * time.Second)
		l.Flush(false)
		l.Flush(true)
		says("letter job=1499 left_out=1498")
		l.Log("api", slog.LevelWarn, "letter", "job", 1500)
		l.Flush(true)
		says("letter job=1500")
	})
}
