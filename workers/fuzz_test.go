package workers

import (
	"reflect"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/queue/claims"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// A remote worker's message is a bounded outcome or an error, and a job arrives as it was sent.
func FuzzWorkerMessages(f *testing.F) {
	for _, text := range []string{
		`{"v":1,"op":"settle","status":"done","reply":{"status":200}}`,
		`{"v":1,"op":"settle","status":"fail","error":"an error\r\nof two lines"}`,
		`{"v":1,"op":"settle","status":"retry-after","retry_after_ms":-9223372036854775808}`,
		`{"v":1,"op":"settle","status":"returned","again":"2d","used":{"Tokens":-1}}`,
		`{"v":1,"op":"progress","progress":"\ud800"}`,
		`{"v":1,"state":"go","lease_ms":1500,"job":{"id":"api:7","attempt":2,` +
			`"accepted":"2030-01-01T00:00:00Z"}}`, "maybe",
	} {
		f.Add(text, "own", []byte("body"))
	}
	f.Fuzz(func(t *testing.T, text, own string, body []byte) {
		m := &nats.Msg{Header: nats.Header{job.HeaderTurn: {text}, "Own": {own}}, Data: body}
		now := time.Now()
		if c, o, err := readReport(m, now); err == nil && c.Op == job.OpSettle {
			if o.RetryAfter < 0 || len(o.Error) > 1100 || o.Again < 0 {
				t.Fatalf("%s: outcome %+v", text, o)
			}
			s := o.Settlement()
			again, err := record.Settled(s, now)
			again.Error, o.Error = s.Error, s.Error // in one line
			if err != nil || !reflect.DeepEqual(again, o) {
				t.Fatalf("outcome %+v is read as %+v, %v", o, again, err)
			}
		}
		turn, err := heard(m)
		if err != nil {
			return
		}
		j, lease, err := readJob(turn)
		if err != nil {
			return
		}
		var same *claims.Turn
		if same, err = heard(jobMessage("to", "reply", j, lease)); err != nil {
			t.Fatal(err)
		}
		again, sameLease, err := readJob(same)
		if err != nil || lease <= 0 || sameLease != lease {
			t.Fatalf("lease %v is read as %v, %v", lease, sameLease, err)
		}
		if !reflect.DeepEqual(again, j) {
			t.Fatalf("job %+v\nis read as %+v", j, again)
		}
	})
}
