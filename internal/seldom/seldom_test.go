package seldom_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-mq/penstock/internal/seldom"
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
