package memstore

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/kit/algorithmstest"
)

func member[S any](rule algorithms.Rule[S], now func() time.Time) Member {
	s := New(rule)
	s.now = now
	return s
}

func TestGroupConformance(t *testing.T) {
	algorithmstest.RunGroup(t, func(_ *testing.T, now func() time.Time,
		r algorithmstest.GroupRules) algorithmstest.Group {
		return NewGroup(member(r.Token, now), member(r.Leaking, now), member(r.Fixed, now),
			member(r.Log, now), member(r.Counter, now))
	})
}
