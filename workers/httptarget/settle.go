package httptarget

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers"
)

// mostSettled is how much of a body is read to find a cost.
const mostSettled = 8 << 20

// settle reports the job's actual costs from Penstock's headers and the places that the policy
// names. If a value is missing or not a number, the estimate stands.
func settle(j workers.Job, from policy.CostFromResponse, header http.Header, body []byte) {
	for cost, used := range job.ReadUsed(header) {
		j.Settle(cost, used)
	}
	for cost, at := range from {
		text := strings.TrimSpace(header.Get(at.Header))
		if at.JSON != "" {
			text = number(body, strings.Split(at.JSON, "."))
		}
		if n, err := strconv.ParseFloat(text, 64); err == nil && n >= 0 {
			j.Settle(cost, int64(math.Ceil(min(n, policy.MaxLimit))))
		}
	}
}

// number returns the text of a number in a document, or "".
func number(document json.RawMessage, names []string) string {
	for _, name := range names {
		var members map[string]json.RawMessage
		if json.Unmarshal(document, &members) != nil {
			return ""
		}
		document = members[name]
	}
	return string(document)
}
