package inforce_test

import (
	"fmt"
	"testing"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/policy"
)

func ExampleDiff() {
	read := func(document string) policy.Policy {
		p, err := policy.Read([]byte(document))
		if err != nil {
			panic(err)
		}
		return p
	}
	before := read(
		`{"name":"stripe", "algorithm":"leaking_bucket", "outflow":"20/s", "capacity":5000, "workers":32}`)
	after := read(
		`{"name":"stripe", "algorithm":"leaking_bucket", "outflow":"50/s", "capacity":5000}`)
	fmt.Println(inforce.Diff(before, after))
	// Output:
	// outflow 20/s → 50/s, workers 32 → 64
}

func TestDifferencesNameEveryFieldThatChanged(t *testing.T) {
	const door = `{"limits":[{"name":"a","algorithm":"fixed_window","limit":%d,"window":"1s"}]}`
	bucket := func(fields string) string {
		return `{"algorithm":"leaking_bucket","outflow":"1/s","capacity":1` + fields + `}`
	}
	for _, c := range []struct{ before, after, want string }{
		{bucket(``), bucket(`,"burst":1`), ``},
		{bucket(`,"concurrency":2`), bucket(`,"target":{"http":{"url":"http://a"}}`),
			`target.http.url none → http://a, concurrency 2 → none`},
		{bucket(`,"target":{"http":{"url":"http://a"}}`),
			bucket(`,"target":{"nats":{"subject":"b"}}`),
			`target.nats.subject none → b, target.http.url http://a → none`},
		{bucket(`,"retry":{"max_attempts":3,"backoff":"2s"}`),
			bucket(`,"retry":{"max_attempts":7}`),
			`retry.max_attempts 3 → 7, retry.backoff 2s → 1s`},
		{fmt.Sprintf(door, 1), fmt.Sprintf(door, 2), `limits[0].limit 1 → 2`},
	} {
		before, err := policy.Parse([]byte(c.before))
		if err != nil {
			t.Fatal(c.before, err)
		}
		after, err := policy.Parse([]byte(c.after))
		if err != nil {
			t.Fatal(c.after, err)
		}
		if got := inforce.Diff(before, after).String(); got != c.want {
			t.Errorf("%s to %s: %q, want %q", c.before, c.after, got, c.want)
		}
	}
	two := int64(2)
	got := inforce.Diff(inforce.Override{Paused: true}, inforce.Override{Burst: &two}).String()
	if want := "burst the policy's → 2, paused true → false"; got != want {
		t.Errorf("overrides: %q, want %q", got, want)
	}
}
