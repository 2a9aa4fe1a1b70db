package hosts_test

import (
	"fmt"

	"github.com/penstock-mq/penstock/internal/server/hosts"
)

func ExampleKnown_Has() {
	known := hosts.Known{"penstock.example.com", "*.internal"}
	for _, field := range []string{"127.0.0.1:8080", "localhost:8080", "Penstock.example.com",
		"a.internal:80", "internal", "evil.example"} {
		fmt.Println(field, known.Has(field))
	}
	// Output:
	// 127.0.0.1:8080 true
	// localhost:8080 true
	// Penstock.example.com true
	// a.internal:80 true
	// internal false
	// evil.example false
}
