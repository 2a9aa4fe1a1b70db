package policy

import (
	"fmt"
	"testing"
)

func TestAdaptNeedsAnOutflow(t *testing.T) {
	for text, bad := range map[string]bool{
		`{"outflow":"10/s","adaptive_rate":{}}`:               false,
		`{"outflow":"10/s","adaptive_rate":{"min":"1/s"}}`:    false,
		`{"outflow":"10/s","adaptive_rate":{"min":"11/s"}}`:   true,
		`{"outflow_total":"10/s","adaptive_rate":{}}`:         true,
		`{"outflow":"10/s","queue":false,"adaptive_rate":{}}`: true,
		`{"outflow":"10/s","adaptive_rate":{"mni":"1/s"}}`:    true,
	} {
		p, err := Parse([]byte(fmt.Sprintf(
			`{"name":"api","algorithm":"leaking_bucket","capacity":10,%s`, text[1:])))
		if (err != nil || len(p.Validate()) > 0) != bad {
			t.Errorf("%s: %v, %v", text, err, p.Validate())
		}
	}
}
