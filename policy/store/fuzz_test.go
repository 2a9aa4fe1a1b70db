package store

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/queue/kv"
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
		r, err := parseRecord(data)
		if err != nil {
			return
		}
		e, err := r.entry(7)
		if err != nil {
			return
		}
		if r.V != job.FormatVersion || e.Revision != 7 || e.Draining != r.Draining ||
			len(e.Levers) != len(r.Levers) || e.Source != r.Source {
			t.Fatalf("%s is read as %+v", data, e)
		}
		if r.Policy, err = json.Marshal(e.Written); err != nil {
			t.Fatal(err)
		}
		written, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := readPolicy(kv.Record{Value: written, Revision: 7}); err != nil ||
			!reflect.DeepEqual(again, e) {
			t.Fatalf("%s\nis read as %+v, %v\nwant      %+v", written, again, err, e)
		}
	})
}

func FuzzOverrideRecord(f *testing.F) {
	for _, seed := range []string{
		`{"v":1,"key":"a","override":{"outflow":"2/s","burst":1,"concurrency":0,"weight":3,"paused":true}}`,
		`{"v":1,"key":"a","override":{}}`, `{"v":2,"key":"a"}`,
		`{"v":1,"key":"a","override":{"new":1}}`, `{"v":1,"key":"b"}`, `null`, ``,
	} {
		f.Add([]byte(seed), "a")
	}
	f.Fuzz(func(t *testing.T, data []byte, key string) {
		o, err := parseOverrideRecord(data, job.Key(key))
		if err != nil {
			if o != (policy.Override{}) {
				t.Fatalf("%+v beside the error %v", o, err)
			}
			return
		}
		if _, err := job.ParseKey(key); err != nil {
			return
		}
		written, err := encodeOverride(job.Key(key), o)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := parseOverrideRecord(written, job.Key(key)); err != nil ||
			!reflect.DeepEqual(again, o) {
			t.Fatalf("%s is read as %+v, %v; want %+v", written, again, err, o)
		}
		if _, err := parseOverrideRecord(written, job.Key(key+"x")); err == nil {
			t.Fatalf("%s is read as another key's", written)
		}
	})
}
