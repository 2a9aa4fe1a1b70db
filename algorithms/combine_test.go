package algorithms_test

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

func TestCombine(t *testing.T) {
	type D = algorithms.Decision
	passes := D{Allowed: true, Granted: 2, Limit: 10, Remaining: 5, ResetAfter: time.Second}
	tight := D{Allowed: true, Granted: 2, Limit: 3, Remaining: 1, ResetAfter: time.Minute,
		Delay: time.Second}
	refuses := D{Limit: 7, Remaining: 1, RetryAfter: time.Second, ResetAfter: time.Hour}
	longer := D{Limit: 8, Remaining: 3, RetryAfter: time.Minute, ResetAfter: time.Minute}
	for name, c := range map[string]struct {
		decisions []D
		want      D
		ruling    int
	}{
		"alone":          {[]D{passes}, passes, 0},
		"all pass":       {[]D{passes, tight}, D{true, 2, 3, 1, 0, time.Minute, time.Second}, 1},
		"tightest first": {[]D{tight, passes}, D{true, 2, 3, 1, 0, time.Minute, time.Second}, 0},
		"one refuses": {[]D{tight, refuses, passes},
			D{false, 0, 7, 1, time.Second, time.Hour, 0}, 1},
		"refusal first": {[]D{refuses, passes}, D{false, 0, 7, 1, time.Second, time.Hour, 0}, 0},
		"longest wait": {[]D{refuses, tight, longer},
			D{false, 0, 8, 1, time.Minute, time.Hour, 0}, 2},
		"shorter after": {[]D{longer, refuses}, D{false, 0, 8, 1, time.Minute, time.Hour, 0}, 0},
	} {
		if got, ruling := algorithms.Combine(c.decisions); got != c.want || ruling != c.ruling {
			t.Errorf("%s: %+v, ruling %d; want %+v, %d", name, got, ruling, c.want, c.ruling)
		}
	}
}
