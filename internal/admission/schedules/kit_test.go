package schedules_test

import (
	"github.com/penstock-mq/penstock/internal/kit/penstocktest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

var (
	paced, door    = penstocktest.Paced, penstocktest.Door
	open, run, ask = penstocktest.Open, penstocktest.Run, penstocktest.Ask
	eventually     = waittest.Until
)
