package notice_test

import (
	"log/slog"
	"maps"
	"testing"

	"github.com/penstock-mq/penstock/internal/base/notice"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

func TestAConditionIsLoggedWhenItBeginsAndWhenItEnds(t *testing.T) {
	var out waittest.Log
	l := notice.New(slog.New(slog.NewTextHandler(&out, nil)))
	full := notice.Kind{Level: slog.LevelWarn, Of: "policy", Begin: "full", End: "room again"}
	for range 2 {
		l.Tell(&full, "a", notice.If(true), "used", 3)
		l.Tell(&full, "b", notice.If(true))
	}
	l.Tell(&full, "never", notice.If(false))
	if open := l.Open(&full); !maps.Equal(open, map[string]string{"a": "holds", "b": "holds"}) {
		t.Errorf("open: %v", open)
	}
	if !l.Tell(&full, "b", "otherwise") || l.Tell(&full, "b", "otherwise") {
		t.Error("a condition that changes is not reported once")
	}
	l.Only(&full, func(subject string) bool { return subject == "b" })
	for line, n := range map[string]int{"level=WARN msg=full policy=a used=3\n": 1,
		"level=WARN msg=full policy=b\n": 2, "level=INFO msg=\"room again\" policy=a\n": 1} {
		if out.Count(line) != n {
			t.Errorf("want %d of %s:\n%s", n, line, &out)
		}
	}
	if out.Count("\n") != 4 {
		t.Errorf("log:\n%s", &out)
	}
}
