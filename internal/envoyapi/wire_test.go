package envoyapi

import (
	"testing"
)

// Whatever arrives is read or refused. What requests and answers mean to Envoy's own types is
// tested in internal/envoytest.
func FuzzRead(f *testing.F) {
	f.Add([]byte("\x0a\x04edge\x12\x0e\x0a\x07\x0a\x02ip\x12\x01a\x1a\x02\x08\x03\x20\x01\x18\x02"))
	f.Add([]byte("\x12\x06\x12\x04\x08\x03\x10\x04"))
	f.Add([]byte("\x0a\xff\xff\xff\xff\x0f"))
	f.Add([]byte("\x13\x14\x0d1234\x09"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var r request
		if err := r.read(text); err == nil && len(r.descriptors) > len(text) {
			t.Errorf("%q has %d descriptors", text, len(r.descriptors))
		}
	})
}

func TestARequestIsRead(t *testing.T) {
	var r request
	err := r.read([]byte("\x0a\x04edge\x12\x19\x0a\x07\x0a\x02ip\x12\x01a\x12\x08\x08\x05\x10\x03" +
		"\x1a\x02\x08\x1e\x1a\x02\x08\x03\x20\x01\x18\x02\x7a\x01x"))
	if err != nil || r.domain != "edge" || r.hits != 2 || len(r.descriptors) != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	if d := r.descriptors[0]; len(d.Entries) != 1 || d.Entries[0].Key != "ip" ||
		d.Entries[0].Value != "a" || *d.Hits != 3 || !d.Refund || d.Limit.Requests != 5 ||
		d.Limit.Unit.String() != "hour" || *d.Limit.Units != 30 {
		t.Errorf("%+v", d)
	}
	for _, text := range []string{"\x0a\x05edge", "\x12\x02\x0a\x05", "\x12\x02\x12\x01\x08",
		"\x12\x02\x1a\x01\x08", "\x12\x05\x12\x03\x1a\x01\x08", "\x00", "\x18"} {
		if err := new(request).read([]byte(text)); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}
