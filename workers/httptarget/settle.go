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

// mostSettled is how much of an answer's body is read where it tells a cost.
const mostSettled = 8 << 20

// settle takes what an answer says of its job's costs: in headers of ours, and where the policy
// says that the target tells them. What is not there, or no number, leaves the estimate.
func settle(j workers.Job, from policy.Settle, header http.Header, body []byte) {
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

// number returns the text of a number in a document; empty: there is none.
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
