package policy

import (
	"testing"

	"github.com/penstock-mq/penstock/algorithms"
)

// Producers must not set headers of servers, proxies or Penstock.
func TestHopByHopHeadersAreNotForwarded(t *testing.T) {
	for _, name := range []string{
		"Nats-Rollup", "nats-msg-id", "Penstock-Job", "penstock-forward-x", "Status", "Host",
		"Connection", "Keep-Alive", "TE",
		"Trailer", "Transfer-Encoding", "Upgrade", "Proxy-Authorization", "Proxy-Connection",
		"X-Forwarded-For", "x-forwarded-host",
		"Forwarded", "Content-Length", "Expect", "HTTP2-Settings", "X-Real-IP", "Via",
		// as CGI and WSGI read them
		"X_Forwarded_For", "x-forwarded_host", "x_real_ip", "Proxy_Authorization", "Content_Length",
		"Penstock_Job",
	} {
		if !NeverForwarded(name) {
			t.Errorf("%s is forwarded", name)
		}
	}
	for _, name := range []string{"Authorization", "X-Tenant", "Content-Type", "Accept", "Hostess",
		"Native", "X-Forward"} {
		if NeverForwarded(name) {
			t.Errorf("%s is not forwarded", name)
		}
	}
}

func TestMethodsAndPathsOfProducers(t *testing.T) {
	read := func(target string) (Policy, error) {
		return Read(
			[]byte(
				`{"name":"a","algorithm":"leaking_bucket","outflow":"1/s","capacity":1,"target":` +
					target + `}`))
	}
	for target, field := range map[string]string{
		`{"http":{"url":"http://h","forward":["Host"]}}`:       "target.http.forward",
		`{"http":{"url":"http://h","forward":["a b"]}}`:        "target.http.forward",
		`{"http":{"url":"http://h","forward":["X-A","x-a"]}}`:  "target.http.forward",
		`{"nats":{"subject":"s","forward":["Nats-Rollup"]}}`:   "target.nats.forward",
		`{"http":{"url":"http://h","methods":[]}}`:             "target.http.methods",
		`{"http":{"url":"http://h","methods":["get"]}}`:        "target.http.methods",
		`{"http":{"url":"http://h","methods":["CONNECT"]}}`:    "target.http.methods",
		`{"http":{"url":"http://h","methods":["GET","GET"]}}`:  "target.http.methods",
		`{"http":{"url":"http://h","path_prefix":"v1"}}`:       "target.http.path_prefix",
		`{"http":{"url":"http://h","path_prefix":"/v1/../x"}}`: "target.http.path_prefix",
		`{"http":{"url":"http://h","path_prefix":"/v1?x"}}`:    "target.http.path_prefix",
		`{"http":{"url":"http://h","path_prefix":"/v%31"}}`:    "target.http.path_prefix",
		`{"nats":{"subject":"s","methods":["GET"]}}`:           "target.nats.methods",
		`{"http":{"url":"http://h","forward":"X-A"}}`:          "target.http.forward",
		`{"http":{"url":"http://h","path_prefix":""}}`:         "target.http.path_prefix",
	} {
		_, err := read(target)
		invalid, ok := err.(*InvalidError)
		if !ok || invalid.Problems[0].Field != field {
			t.Errorf("%s: %v; want a problem of %s", target, err, field)
		}
	}
	p, err := read(
		`{"http":{"url":"http://h","forward":[],"methods":["PUT","POST"],"path_prefix":"/v1/charges"}}`)
	if err != nil {
		t.Fatal(err)
	}
	if h := p.Target.HTTP; h.Forward == nil || h.Forward.Allows("X-A") || h.Method() != "PUT" ||
		!h.AllowsMethod("POST") ||
		h.AllowsMethod("DELETE") {
		t.Errorf("got %+v", h)
	}
	for path, want := range map[string]bool{
		"/v1/charges": true, "/v1/charges/1": true, "/v1/chargesx": false, "/v1": false,
		"/v1%2Fcharges": false, "/": false,
	} {
		if p.Target.HTTP.AllowsPath(path) != want {
			t.Errorf("path %s: %v", path, !want)
		}
	}
	if p, err = read(`{"http":{"url":"http://h"}}`); err != nil ||
		!p.Target.HTTP.Forward.Allows("X-A") ||
		!p.Target.HTTP.AllowsMethod("DELETE") || p.Target.HTTP.Method() != "POST" ||
		!p.Target.HTTP.AllowsPath("/x") {
		t.Errorf("without lists: %+v, %v", p.Target, err)
	}
}

func TestATargetBelowThePrefixMustBeAJobsSubject(t *testing.T) {
	for subject, ok := range map[string]bool{
		"penstock.jobs.next.k": true, "penstock.jobs.next.a.b": true, "svc.x": true,
		"penstocks.valve": true, "staging.valve.x": true,
		"penstock.valve.next.0": false, "penstock.admitted.next.k": false,
		"penstock.dead.next.k": false, "penstock.work.next": false,
		"penstock.submit.next.k": false, "penstock.event.x": false, "penstock.jobs.next": false,
		"penstock.jobs": false, "penstock": false,
	} {
		p := Policy{Name: "a",
			Rule: Rule{Algorithm: LeakingBucket, Outflow: algorithms.Rate{Count: 1, Per: 1e9},
				Capacity: 1},
			Target: &Target{NATS: &NATSTarget{Subject: subject}}}
		if problems := p.CheckPrefix("penstock"); (len(problems) == 0) != ok {
			t.Errorf("%s: %v", subject, problems)
		}
	}
}
