package store

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/job"
)

func FuzzPolicyRecord(f *testing.F) {
	for _, seed := range []string{
		`{"v":1,"policy":{"name":"a","algorithm":"leaking_bucket","outflow":"2/s","capacity":5},"source":"file","set":"default","levers":[{"outflow":"1/s","paused":true,"by":"ann","at":"2026-01-02T03:04:05Z"}]}`,
		`{"v":1,"policy":{"name":"a","algorithm":"fixed_window","limit":2,"window":"1d"},"source":"api","draining":true}`,
		`{"v":2,"policy":{}}`, `{"v":1,"policy":null}`, `{"v":1}`, `{}`, `null`, `[]`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := Parse(data)
		if err != nil {
			return
		}
		if e.V != job.FormatVersion {
			t.Fatalf("%s is read as %+v", data, e)
		}
		written, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Parse(written); err != nil || !reflect.DeepEqual(again, e) {
			t.Fatalf("%s\nis read as %+v, %v\nwant      %+v", written, again, err, e)
		}
	})
}

func FuzzOverrideRecord(f *testing.F) {
	for _, seed := range []string{
		`{"v":1,"override":{"outflow":"2/s","burst":1,"concurrency":0,"weight":3,"paused":true}}`,
		`{"v":1,"override":{}}`, `{"v":2,"key":"a"}`,
		`{"v":1,"override":{"new":1}}`, `null`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := parseOverride(data)
		if err != nil {
			if o != (inforce.Override{}) {
				t.Fatalf("%+v beside the error %v", o, err)
			}
			return
		}
		content, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		written, err := json.Marshal(overrideRecord{job.FormatVersion, content})
		if err != nil {
			t.Fatal(err)
		}
		if again, err := parseOverride(written); err != nil || !reflect.DeepEqual(again, o) {
			t.Fatalf("%s is read as %+v, %v; want %+v", written, again, err, o)
		}
	})
}
