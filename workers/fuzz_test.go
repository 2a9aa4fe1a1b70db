package workers

import (
	"reflect"
	"testing"

	"github.com/nats-io/nats.go"
)

// A remote worker's message is a bounded outcome or an error, and a job arrives as it was sent.
func FuzzWorkerMessages(f *testing.F) {
	for _, status := range []string{statusDone, statusFail, statusPermanent, statusRetryAfter,
		statusLate, statusReturned, statusGo, "maybe"} {
		f.Add(status, "1500", "an error\r\nof two lines", []byte("body"))
	}
	f.Add(statusRetryAfter, "-9223372036854775808", "\xff", []byte{})
	f.Add(statusFail, "true", "down", []byte{})
	f.Fuzz(func(t *testing.T, status, number, text string, body []byte) {
		m := message("to", status)
		for _, name := range []string{headerRetryAfter, headerAttempt, headerTimeout,
			headerUnavailable} {
			m.Header[name] = []string{number}
		}
		m.Header[headerError], m.Header[headerJob], m.Header["Own"] = []string{text},
			[]string{text}, []string{text}
		m.Header[headerV], m.Header[headerAccepted] = []string{protocolVersion},
			[]string{"2030-01-01T00:00:00Z"}
		m.Data = body

		if o, err := readOutcome(7, m); err == nil {
			if o.RetryAfter < 0 || o.RetryAfter > mostRetryAfter || len(o.Error) > 1100 {
				t.Fatalf("%q: outcome %+v", status, o)
			}
			o.Error = oneLine(o.Error)
			again, err := readOutcome(7, outcomeMessage("to", o))
			if o.Error == "" {
				again.Error = ""
			}
			if err != nil || !reflect.DeepEqual(again, o) {
				t.Fatalf("outcome %+v is read as %+v, %v", o, again, err)
			}
		}
		job, timeout, err := readJob(m)
		if err != nil {
			return
		}
		again, sameTimeout, err := readJob(jobMessage("to", "reply", job, timeout))
		if err != nil || timeout <= 0 || sameTimeout != timeout {
			t.Fatalf("time-out %v is read as %v, %v", timeout, sameTimeout, err)
		}
		if job.Header == nil {
			job.Header = nats.Header{}
		}
		job.Header[headerIdempotent] = []string{job.IdempotencyKey}
		if !reflect.DeepEqual(again, job) {
			t.Fatalf("job %+v\nis read as %+v", job, again)
		}
	})
}
