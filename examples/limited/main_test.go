package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
)

func Example() {
	p, err := open(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	server := httptest.NewServer(limit(p, hello))
	defer server.Close()
	for range 6 {
		answer, err := http.Get(server.URL)
		if err != nil {
			log.Fatal(err)
		}
		answer.Body.Close()
		fmt.Printf("%d, come back in %q s\n", answer.StatusCode, answer.Header.Get("Retry-After"))
	}
	// Output:
	// 200, come back in "" s
	// 200, come back in "" s
	// 200, come back in "" s
	// 200, come back in "" s
	// 200, come back in "" s
	// 429, come back in "2" s
}
