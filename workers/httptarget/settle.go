package httptarget

import (
	"net/http"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers"
)

// mostSettled bounds the part of a body that is searched for costs.
const mostSettled = 8 << 20

// settle reports actual costs, from Penstock's headers and the policy's places. If a value is
// missing or not a number, the estimate counts.
func settle(j workers.Job, from policy.CostFromResponse, header http.Header, body []byte) {
	for cost, used := range job.ReadUsed(header) {
		j.Settle(cost, used)
	}
	for cost, at := range from {
		if n, ok := job.UsedAt(at, header, body); ok {
			j.Settle(cost, n)
		}
	}
}
