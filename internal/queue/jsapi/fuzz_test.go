package jsapi

import (
	"encoding/json"
	"testing"

	"github.com/nats-io/nats.go"
)

func FuzzAckSubject(f *testing.F) {
	for _, seed := range []string{
		"$JS.ACK.S.C.1.2.3.4.5", "$JS.ACK._.hash.S.C.1.2.3.4.5",
		"$JS.ACK.hub.hash.S.C.1.2.3.4.5.token", "$JS.ACK.S.C.1.2.3.4",
		"$JS.ACK.S.C.1.2.3.4.5.6", "$JS.ACK.S.C.1.18446744073709551615.3.4.5", "$JS.ACK........",
		"$JS.ACK.S.C.1.-2.3.4.5", "",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, subject string) {
		got, ok := parseAckSubject(subject)
		if !ok {
			if got != (ackMeta{}) {
				t.Fatalf("%q: %+v beside a no", subject, got)
			}
			return
		}
		theirs, err := (&nats.Msg{Reply: subject, Sub: &nats.Subscription{}}).Metadata()
		if err != nil {
			return
		}
		if got.streamSeq != theirs.Sequence.Stream || got.consumerSeq != theirs.Sequence.Consumer ||
			got.pending != theirs.NumPending || !got.stored.Equal(theirs.Timestamp) {
			t.Fatalf("%q is read as %+v, by nats.go as %+v", subject, got, theirs)
		}
	})
}

func FuzzPubAck(f *testing.F) {
	for _, seed := range []string{
		`{"stream":"S","seq":5,"duplicate":true}`, `{"stream":"S","seq":18446744073709551615}`,
		`{"stream":"S","domain":"D","seq":5}`, `{"stream":"","seq":5}`, `{}`, `null`, `hello`,
		`{"error":{"code":503,"err_code":10077,"description":"maximum messages per subject exceeded"},"stream":"S","seq":0}`,
		`{"error":{"code":400,"err_code":7,"description":"a service's own"}}`, `{"error":"text"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		ack, err := ParsePubAck(data)
		switch {
		case err == nil && ack.Stream == "":
			t.Fatalf("%s is stored as %+v", data, ack)
		case err != nil && ack != (PubAck{}):
			t.Fatalf("%s: %+v beside the error %v", data, ack, err)
		case err != nil && Translate(err) == nil:
			t.Fatalf("%s: an error became none", data)
		}
		var whole PubAck
		if json.Unmarshal(data, &whole) == nil && err == nil &&
			(ack.Seq != whole.Seq || ack.Duplicate != whole.Duplicate) {
			t.Fatalf("%s is read as %+v, by encoding/json as %+v", data, ack, whole)
		}
	})
}
