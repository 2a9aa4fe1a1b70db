package workers

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
)

// Another spelling of the host must not get another rate.
func TestAReceiverHasOneBucket(t *testing.T) {
	for text, want := range map[string]string{
		"https://shop.example/done":    "shop.example",
		"https://Shop.EXAMPLE.:443/":   "shop.example",
		"http://shop.example:80/?a=b":  "shop.example",
		"http://shop.example:443/":     "shop.example:443",
		"https://[2001:DB8::1]/":       "2001:db8::1",
		"https://[2001:db8:0::01]/":    "2001:db8::1",
		"http://[::ffff:192.0.2.1]/":   "192.0.2.1",
		"https://[2001:db8::1]:8443/x": "[2001:db8::1]:8443",
	} {
		to, err := job.ParseCallback(text)
		if err != nil {
			t.Fatal(err)
		}
		if key, err := receiver(to); err != nil || key.Raw() != want {
			t.Errorf("%s is called in the bucket %s, %v", text, key.Raw(), err)
		}
	}
}

func TestAJobWithoutACallbackCostsItsStartNothing(t *testing.T) {
	header := map[string][]string{job.HeaderTag: {"campaign-7"}, "Content-Type": {"text/plain"}}
	if n := testing.AllocsPerRun(100, func() {
		(&callbacks{}).of("hooks", "mail", "a", header, time.Unix(1, 0), 7)
	}); n > 0 {
		t.Errorf("it takes %v allocations", n)
	}
}
