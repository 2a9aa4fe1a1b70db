package admit

import (
	"errors"
	"testing"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/policy"
)

// The client gets an error; otherwise an operator would find a dead letter.
func TestTheAdmitterRefusesRequestsThatTheTargetForbids(t *testing.T) {
	guarded, prefix := stripe, "/v1"
	guarded.Target = &policy.Target{HTTP: &policy.HTTPTarget{URL: "http://h",
		Forward: policy.Forward{"X-Tenant"},
		Methods: []string{"POST"}, PathPrefix: &prefix}}
	for name, value := range map[string]string{
		"Penstock-Forward-Nats-Rollup": "all", "Penstock-Forward-Host": "x",
		"Penstock-Forward-Authorization": "x",
		"Penstock-Method":                "DELETE", "Penstock-Path": "/v1/..;/admin",
		"penstock-path": "/v2",
	} {
		f := &fakeQueue{capacity: 3}
		r := request("stripe")
		r.Header = map[string][]string{name: {value}}
		_, err := newTestService(t, f, &fakeValves{}, guarded).Submit(t.Context(), r)
		if bad, ok := errors.AsType[*admission.RequestError](err); !ok || f.count() > 0 ||
			bad.Reason == "" {
			t.Errorf("%s: %s: %v, %d jobs", name, value, err, f.count())
		}
	}
	r := request("stripe")
	r.Header = map[string][]string{"Penstock-Forward-X-Tenant": {"a"}, "Penstock-Path": {"/v1/x"}}
	if _, err := newTestService(t, &fakeQueue{capacity: 3}, &fakeValves{},
		guarded).Submit(t.Context(), r); err != nil {
		t.Error(err)
	}
}

// Targets need the Content-Encoding to read the body, and a content type other than curl's default.
func TestTheContentTypeIsStored(t *testing.T) {
	const form = "application/x-www-form-urlencoded"
	for _, c := range []struct{ given, body, want string }{
		{form, `{"amount": 5}`, "application/json"},
		{form, " [1, 2]\n", "application/json"},
		{form + "; charset=utf-8", `{}`, "application/json"},
		{form, "a=1&b=2", form},
		{form, `{"amount": 5`, form},
		{form, `"text"`, form},
		{form, "", form},
		{"", `{"amount": 5}`, "application/json"},
		{"", "5", ""},
		{"", "plain", ""},
		{"text/plain", `{}`, "text/plain"},
	} {
		f := &fakeQueue{capacity: 3}
		r := request("stripe")
		r.Body = []byte(c.body)
		r.Header = map[string][]string{"Content-Encoding": {"gzip"}}
		if c.given != "" {
			r.Header["Content-Type"] = []string{c.given}
		}
		if _, err := newTestService(
			t, f, &fakeValves{}, stripe).Submit(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if got := f.last.Header.Get("Content-Type"); got != c.want ||
			f.last.Header.Get("Content-Encoding") != "gzip" {
			t.Errorf("%q as %q is stored with %v", c.body, c.given, f.last.Header)
		}
		if c.given != "" && r.Header["Content-Type"][0] != c.given {
			t.Error("the request's header was changed")
		}
	}
}
