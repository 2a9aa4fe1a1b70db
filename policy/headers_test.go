package policy_test

import (
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/policy"
)

func TestHeadersOfATarget(t *testing.T) {
	const before, after = `{"name":"p","algorithm":"leaking_bucket","outflow":"1/s","capacity":1,"target":{"http":{"url":"http://a","headers":`, `}}}`
	p, err := policy.Read(
		[]byte(before + `{"Authorization":{"file":"/run/secrets/token"}}` + after))
	if err != nil || p.Target.HTTP.Headers["Authorization"].File != "/run/secrets/token" {
		t.Fatalf("%+v, %v", p.Target, err)
	}
	for headers, want := range map[string]string{
		`{"Authorization":"Bearer hunter2"}`:    `target.http.headers.Authorization: want {file: PATH}`,
		`{"Authorization":["hunter2"]}`:         `target.http.headers.Authorization: want {file: PATH}`,
		`{"Authorization":{"value":"hunter2"}}`: `target.http.headers.Authorization.value: unknown field`,
		`{"Authorization":{}}`:                  `target.http.headers.Authorization.file: is required`,
		`{"Authorization":{"file":"token"}}`:    `target.http.headers.Authorization.file: "token": want an absolute path`,
		`{"Penstock-Job":{"file":"/x"}}`:        `target.http.headers: "Penstock-Job" is set by the drainer`,
		`{"host":{"file":"/x"}}`:                `target.http.headers: "host" is set by the drainer`,
		`{"A B":{"file":"/x"}}`:                 `target.http.headers: "A B" is not a header name`,
		`["Authorization"]`:                     `target.http.headers: want fields, not a list`,
		`{"A":{"file":"/x"},"A":{"file":"/y"}}`: `target.http.headers.A: is given twice`,
	} {
		_, err := policy.Read([]byte(before + headers + after))
		if err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want %s", headers, err, want)
		}
	}
}
