package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/config"
)

// A file of an installation with a policy for each of many partners.
func BenchmarkLoad(b *testing.B) {
	var file strings.Builder
	file.WriteString("nats: {url: nats://a:4222}\npolicies:\n")
	for i := range 10_000 {
		fmt.Fprintf(&file, "  - name: partner-%d\n    algorithm: leaking_bucket\n"+
			"    outflow: 96/s\n    capacity: 5000\n    concurrency: 20\n    timeout: 30s\n"+
			"    target: {http: {url: \"https://api.example.com/%d\", methods: [POST]}}\n", i, i)
	}
	for b.Loop() {
		c, err := config.Load(strings.NewReader(file.String()), nil)
		if err != nil || len(c.Policies) != 10_000 {
			b.Fatal(len(c.Policies), err)
		}
	}
}
