package job_test

import (
	"testing"

	"github.com/penstock-mq/penstock/internal/queue/job"
)

func TestSampledTrace(t *testing.T) {
	const id = "0af7651916cd43dd8448eb211c80319c"
	for header, want := range map[string]string{
		"00-" + id + "-b7ad6b7169203331-01":                       id,
		"00-" + id + "-b7ad6b7169203331-03":                       id,
		"cc-" + id + "-b7ad6b7169203331-01-what-comes-later":      id,
		"00-" + id + "-b7ad6b7169203331-00":                       "",
		"00-" + id + "-b7ad6b7169203331-0x":                       "",
		"00-" + id + "-b7ad6b7169203331":                          "",
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": "",
		"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01": "",
		"00-" + id[1:] + "--b7ad6b7169203331-01":                  "",
		"":                                                        "",
	} {
		if got := job.SampledTrace(map[string][]string{"Traceparent": {header}}); got != want {
			t.Errorf("%q: %q, want %q", header, got, want)
		}
	}
}
