// Command limited is a web server that limits its clients: five requests at once, then one in two
// seconds, by the client's address. A refused request gets 429 and Retry-After.
//
//	go run ./examples/limited
//	for i in 1 2 3 4 5 6; do curl -i http://127.0.0.1:8090/; done
package main

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
)

func main() {
	if err := run(context.Background(), "127.0.0.1:8090"); err != nil {
		fmt.Fprintln(os.Stderr, "limited:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, address string) error {
	p, err := open(ctx)
	if err != nil {
		return err
	}
	defer p.Close()
	fmt.Println("listening on http://" + address)
	server := http.Server{Addr: address, Handler: limit(p, hello), ReadHeaderTimeout: time.Minute}
	return server.ListenAndServe()
}

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintln(w, "hello")
})

// open makes a door policy: it has no queue and no jobs.
func open(ctx context.Context) (*penstock.Penstock, error) {
	return penstock.Open(ctx, penstock.Options{Policies: []policy.Policy{{
		Name: "visitors",
		Rule: policy.Rule{
			Algorithm: policy.TokenBucket,
			Capacity:  5,
			Refill:    algorithms.Rate{Count: 1, Per: 2 * time.Second},
		},
	}}})
}

// limit calls next for the requests that the policy allows.
func limit(p *penstock.Penstock, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			client = r.RemoteAddr
		}
		checked, err := p.Check(r.Context(), penstock.Request{Policy: "visitors", Key: client})
		if err != nil {
			http.Error(w, "the limit cannot be checked", http.StatusInternalServerError)
			return
		}
		if !checked.Allowed {
			seconds := int(math.Ceil(checked.RetryAfter.Seconds()))
			w.Header().Set("Retry-After", strconv.Itoa(seconds))
			http.Error(w, "come back later", http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, r)
	})
}
