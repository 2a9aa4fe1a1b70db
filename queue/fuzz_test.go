package queue

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/policy"
)

// What a header of a job says lies within its bounds, and neither the case of its name, nor blanks around its value, nor
// the other header change it.
func FuzzParseHeader(f *testing.F) {
	for name, value := range map[string]string{
		HeaderVersion: "1", HeaderDeadline: "1d12h", HeaderNotBefore: "2030-01-01T00:00:00Z", HeaderCost: "7",
		HeaderPriority: "-9", HeaderMethod: "PUT", HeaderPath: "/a?b=c", HeaderForwardPrefix + "X-A": "\x00", "penstock-new": "1",
	} {
		f.Add(name, value, HeaderDeadline, "0001-01-01T00:00:00Z")
	}
	stored := time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)
	f.Fuzz(func(t *testing.T, name, value, otherName, otherValue string) {
		if name == otherName {
			return
		}
		a := ParseHeader(nats.Header{name: {value}, otherName: {otherValue}}, stored)
		if a.Malformed != nil {
			if a.Malformed.Error() == "" {
				t.Fatal("malformed without a word")
			}
			return
		}
		if a.Cost < 1 || a.Cost > MaxCost || a.Priority < MinPriority || a.Priority > MaxPriority {
			t.Fatalf("cost %d, priority %d", a.Cost, a.Priority)
		}
		one := ParseHeader(nats.Header{name: {value}}, stored)
		if one.Malformed != nil {
			t.Fatalf("%q: %q is malformed alone only: %v", name, value, one.Malformed)
		}
		if (one.Deadline.IsZero()) == strings.EqualFold(name, HeaderDeadline) {
			t.Fatalf("%q: %q means the deadline %v", name, value, one.Deadline)
		}
		again := ParseHeader(nats.Header{strings.ToLower(name): {" " + value + "\t"}}, stored)
		again.Header, one.Header = nil, nil
		if !isASCII(name) || again.Malformed == nil && reflect.DeepEqual(again, one) {
			return
		}
		t.Fatalf("%q: %q means %+v, in another spelling %+v", name, value, one, again)
	})
}

func isASCII(s string) bool { return !strings.ContainsFunc(s, func(r rune) bool { return r >= 0x80 }) }

// A path of a job stays where it is appended, however often it is unescaped on its way.
func FuzzParsePath(f *testing.F) {
	for _, seed := range []string{"/", "/a//b?c=/..", "/%2e%2E/x", "/a%2f../x", "//host", "///a", "/\\host", "/..%5cx", "/a/..;/b", "/%00", "/%252e%252e/",
		"/a#b", "/?x", "/:80"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		path, err := ParsePath(value)
		if err != nil {
			return
		}
		if path.Scheme != "" || path.Host != "" || path.User != nil || !strings.HasPrefix(path.Path, "/") {
			t.Fatalf("%q is read as %#v", value, path)
		}
		if again, err := ParsePath(path.EscapedPath()); err != nil || again.Path != path.Path {
			t.Fatalf("%q is written as %q, which is %v, %v", value, path.EscapedPath(), again, err)
		}
		for seen, more := path.EscapedPath(), 3; more > 0; more-- { // as it is, and as unescaped once and twice
			for _, segment := range strings.FieldsFunc(seen, func(r rune) bool { return r == '/' || r == '\\' }) {
				name, _, _ := strings.Cut(segment, ";")
				if name == "." || name == ".." || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' }) {
					t.Fatalf("%q is accepted, and %q a segment of it", value, segment)
				}
			}
			var err error
			if seen, err = url.PathUnescape(seen); err != nil {
				return
			}
		}
	})
}

// A policy's record is read as it was written, and one in another format is not read at all.
func FuzzPolicyRecord(f *testing.F) {
	for _, seed := range []string{
		`{"v":1,"policy":{"name":"a","algorithm":"leaking_bucket","outflow":"2/s","capacity":5},"source":"file","file":"0a","paused":true}`,
		`{"v":1,"policy":{"name":"a","algorithm":"fixed_window","limit":2,"window":"1d"},"source":"api","retired":true}`,
		`{"v":2,"policy":{}}`, `{"v":1,"policy":null}`, `{"v":1}`, `{}`, `null`, `[]`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := parsePolicyRecord(data)
		if err != nil {
			return
		}
		e, err := r.entry(7)
		if err != nil {
			return
		}
		if r.V != formatVersion || e.Revision != 7 || e.Retired != r.Retired || e.Paused != r.Paused || e.Source != r.Source {
			t.Fatalf("%s is read as %+v", data, e)
		}
		if r.Policy, err = json.Marshal(e.Policy); err != nil {
			t.Fatal(err)
		}
		written, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := readPolicy(Record{Value: written, Revision: 7}); err != nil || !reflect.DeepEqual(again, e) {
			t.Fatalf("%s\nis read as %+v, %v\nwant      %+v", written, again, err, e)
		}
	})
}

// An override's record is read as it was written, under its own key alone.
func FuzzOverrideRecord(f *testing.F) {
	for _, seed := range []string{
		`{"v":1,"key":"a","override":{"outflow":"2/s","burst":1,"concurrency":0,"weight":3,"paused":true}}`,
		`{"v":1,"key":"a","override":{}}`, `{"v":2,"key":"a"}`, `{"v":1,"key":"a","override":{"new":1}}`, `{"v":1,"key":"b"}`, `null`, ``,
	} {
		f.Add([]byte(seed), "a")
	}
	f.Fuzz(func(t *testing.T, data []byte, key string) {
		o, err := parseOverrideRecord(data, Key(key))
		if err != nil {
			if o != (policy.Override{}) {
				t.Fatalf("%+v beside the error %v", o, err)
			}
			return
		}
		if _, err := ParseKey(key); err != nil {
			return // such a key is not asked for
		}
		written, err := encodeOverride(Key(key), o)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := parseOverrideRecord(written, Key(key)); err != nil || !reflect.DeepEqual(again, o) {
			t.Fatalf("%s is read as %+v, %v; want %+v", written, again, err, o)
		}
		if _, err := parseOverrideRecord(written, Key(key+"x")); err == nil {
			t.Fatalf("%s is read as another key's", written)
		}
	})
}

// stable reads data as a T, if it can be, and fails if what is then written is read as anything else.
func stable[T any](t *testing.T, data []byte) (value T, ok bool) {
	t.Helper()
	if json.Unmarshal(data, &value) != nil {
		return value, false
	}
	written, err := json.Marshal(value)
	if err != nil { // of a time that no JSON can hold
		return value, false
	}
	var again T
	if err := json.Unmarshal(written, &again); err != nil {
		t.Fatalf("%s is not read again: %v", written, err)
	}
	if second, err := json.Marshal(again); err != nil || !bytes.Equal(second, written) {
		t.Fatalf("%s is read again as %s, %v", written, second, err)
	}
	return value, true
}

// What valves are asked and answer, and what is told of jobs, is read as it was written.
func FuzzValveMessages(f *testing.F) {
	ms, position := int64(7), 3
	for _, seed := range []any{
		ValveQuestion{V: 1, Op: OpExpect, Jobs: []uint64{1, 1 << 63}, Key: "a.%2A", Limit: -1, Outcome: json.RawMessage(`{"seq":1}`)},
		ValveAnswer{V: 1, Starts: []ExpectedStart{{Seq: 1, Known: true, DelayMS: 5}}, Buckets: []BucketState{{Key: "a", ExpectMS: &ms, Rate: 1.5}},
			Job: &JobState{Seq: 1, State: JobWaiting, Position: &position, AcceptedAt: time.Unix(1, 2)}},
		Event{V: 1, Type: EventDone, Job: "api:1", Key: "a", Attempt: 2, WaitMS: 3},
	} {
		data, err := json.Marshal(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"jobs":null,"buckets":[{}],"job":{},"rate":1e400}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		stable[ValveQuestion](t, data)
		stable[ValveAnswer](t, data)
		stable[Event](t, data)
	})
}

// The reply subject of a delivery says what nats.go reads in it.
func FuzzAckSubject(f *testing.F) {
	for _, seed := range []string{
		"$JS.ACK.S.C.1.2.3.4.5", "$JS.ACK._.hash.S.C.1.2.3.4.5", "$JS.ACK.hub.hash.S.C.1.2.3.4.5.token", "$JS.ACK.S.C.1.2.3.4",
		"$JS.ACK.S.C.1.2.3.4.5.6", "$JS.ACK.S.C.1.18446744073709551615.3.4.5", "$JS.ACK........", "$JS.ACK.S.C.1.-2.3.4.5", "",
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
			return // they want no further tokens, or fewer
		}
		if got.streamSeq != theirs.Sequence.Stream || got.consumerSeq != theirs.Sequence.Consumer ||
			got.pending != theirs.NumPending || !got.stored.Equal(theirs.Timestamp) {
			t.Fatalf("%q is read as %+v, by nats.go as %+v", subject, got, theirs)
		}
	})
}

// What answers a publish is an acknowledgement with a stream, or a refusal, or neither; never two of them.
func FuzzPubAck(f *testing.F) {
	for _, seed := range []string{
		`{"stream":"S","seq":5,"duplicate":true}`, `{"stream":"","seq":5}`, `{}`, `null`, `hello`,
		`{"error":{"code":503,"err_code":10077,"description":"maximum messages per subject exceeded"},"stream":"S","seq":0}`,
		`{"error":{"code":400,"err_code":7,"description":"a service's own"}}`, `{"error":"text"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		ack, err := parsePubAck(data)
		refusal := PublishRefusal(data)
		var answer *apiError
		switch {
		case err == nil && (refusal != nil || ack.Stream == ""):
			t.Fatalf("%s is stored as %+v, and refused with %v", data, ack, refusal)
		case err != nil && ack != (pubAck{}):
			t.Fatalf("%s: %+v beside the error %v", data, ack, err)
		case refusal != nil && !errors.As(err, &answer):
			t.Fatalf("%s is refused with %v, and read as %v", data, refusal, err)
		case err != nil && translate(err) == nil:
			t.Fatalf("%s: an error became none", data)
		}
	})
}

// The name of a consumer says whose it is.
func FuzzConsumerName(f *testing.F) {
	names, err := NewNames("")
	if err != nil {
		f.Fatal(err)
	}
	f.Add("valve-0-1")
	f.Add("valve--1-18446744073709551615")
	f.Add("valve-00-1")
	f.Add("valve-1-2-3")
	f.Fuzz(func(t *testing.T, name string) {
		partition, epoch, ok := names.parseConsumer(name)
		if !ok {
			return
		}
		if p, e, ok := names.parseConsumer(names.Consumer(partition, epoch)); !ok || p != partition || e != epoch {
			t.Fatalf("%q is %d and %d, which are %q", name, partition, epoch, names.Consumer(partition, epoch))
		}
	})
}

// What the server says of a stored message counts, whatever header block its publisher gave it.
func FuzzServersHeaders(f *testing.F) {
	for _, seed := range []string{
		"", "A: b\r\n", "Nats-Sequence: 8\r\nNats-Subject: penstock.queue.p.0.x\r\n", "Nats-Msg-Size: -5\r\n", "Status: 404\r\n", "no header", "nats-msg-size: 9\r\n",
		"A:\r\n \r\n",
	} {
		f.Add(seed)
	}
	names, err := NewNames("")
	if err != nil {
		f.Fatal(err)
	}
	b := &Broker{names: names}
	const subject = "penstock.queue.p.3.key"
	stored := time.Date(2031, 1, 2, 3, 4, 5, 6, time.UTC)
	f.Fuzz(func(t *testing.T, publishers string) {
		for line := range strings.Lines(publishers) {
			if strings.TrimRight(line, "\r\n") == "" {
				return // here the block ends for a client. Of a job that is read so, nothing is used but the body
			}
		}
		block := fmt.Sprintf("NATS/1.0\r\n%sNats-Stream: S\r\nNats-Subject: %s\r\nNats-Sequence: 7\r\nNats-Time-Stamp: %s\r\nNats-Msg-Size: 11\r\n\r\n",
			publishers, subject, stored.Format(time.RFC3339Nano))
		header, err := nats.DecodeHeadersMsg([]byte(block))
		if err != nil {
			return // the client leaves such a block out
		}
		m, ok := readDirect(&nats.Msg{Header: header})
		if !ok {
			return // the leader is asked, who answers in another form
		}
		a := b.arrived(m, true)
		if a.Seq != 7 || a.Key != "key" || a.Partition != 3 || !a.Stored.Equal(stored) || a.Size != 11 {
			t.Fatalf("%q: %+v", publishers, a)
		}
	})
}

// A record of how a job ended is read as it was written.
func FuzzEnded(f *testing.F) {
	data, err := json.Marshal(Ended{V: formatVersion, How: EndDead, Letter: 5, Job: 6, Accepted: time.Unix(1, 2), Sum: "x"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) { stable[Ended](t, data) })
}
