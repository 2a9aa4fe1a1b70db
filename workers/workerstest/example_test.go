package workerstest_test

import (
	"fmt"
	"time"

	"github.com/penstock-mq/penstock/workers/workerstest"
)

// CheckRate also applies to starts observed elsewhere, for example by a stand-in for a third party.
func ExampleCheckRate() {
	began := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	starts := []time.Time{began}
	for range 3 {
		starts = append(starts, starts[len(starts)-1].Add(500*time.Millisecond))
	}
	fmt.Println(workerstest.CheckRate(starts, 2, 1))
	fmt.Println(workerstest.CheckRate(starts, 1, 1))
	// Output:
	// <nil>
	// 3 starts within 1s, at a peak of 1/s
}
