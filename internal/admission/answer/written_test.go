package answer

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/api"
)

func TestAnswersWrittenByHandAreTheStructs(t *testing.T) {
	same := func(written []byte, as any) {
		t.Helper()
		in := json.NewDecoder(bytes.NewReader(written))
		in.DisallowUnknownFields()
		if err := in.Decode(as); err != nil {
			t.Fatalf("%v: %s", err, written)
		}
		if encoded := encode(as); !bytes.Equal(encoded, written) {
			t.Errorf("written %s, and the struct is %s", written, encoded)
		}
	}
	for _, o := range []admission.Outcome{
		{Verdict: admission.Allowed, Job: "p:1", DelayKnown: true},
		{Verdict: admission.Queued, Job: "p:2", Delay: time.Second, DelayKnown: true},
		{Verdict: admission.Queued, Job: "p:3", Depth: 2, Duplicate: true},
		{Verdict: admission.Queued, Job: "p:4", Position: 1, Depth: 2, NoResult: "time",
			Progress: `half "way"`},
	} {
		same(appendAccepted(nil, o), &api.Accepted{})
		line := AppendSubmitted(nil, 7, o)
		if o.Progress == "" {
			same(bytes.TrimSpace(line), &api.BatchLine{})
		}
	}
}
