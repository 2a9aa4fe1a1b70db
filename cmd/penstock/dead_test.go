package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// A server that has not enough time for all that is asked answers for a part.
func TestARequestIsRepeatedUntilNothingIsLeft(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first := asked.Add(1) == 1
		half := func(one, other string) {
			fmt.Fprint(w, map[bool]string{true: one, false: other}[first])
		}
		switch r.Method + " " + r.URL.String() {
		case "POST /v1/dead/mail/replay":
			half(`{"replayed":2,"full":1,"complete":false}`, `{"replayed":3,"full":1,"complete":true}`)
		case "DELETE /v1/dead/mail":
			half(`{"discarded":2,"incomplete":true}`, `{"discarded":3}`)
		case "POST /v1/purge/mail/a":
			half(`{"key":"a","removed":2,"more":true}`, `{"key":"a","removed":3}`)
		case "POST /v1/cancel/mail?tag=x":
			fmt.Fprint(w, `{"cancelled":2,"left":1,"next":7}`)
		case "POST /v1/cancel/mail?tag=x&after=7":
			fmt.Fprint(w, `{"cancelled":3,"left":1}`)
		default:
			t.Errorf("it asked for %s %s", r.Method, r.URL)
		}
	}))
	defer server.Close()
	i := at(t, server.URL)
	for _, c := range []struct {
		args, says, document string
		status               int
	}{
		{"dead replay mail --all", "5 replayed, 1 kept because their buckets are full\n",
			`{"replayed":5,"full":1,"unfit":0,"complete":true}`, 3},
		{"dead drop mail --all", "5 dead letters dropped\n", `{"discarded":5}`, 0},
		{"purge mail --key a", "a of mail: 5 jobs dropped\n", `{"key":"a","removed":5}`, 0},
		{"cancel mail --tag x", "mail: 5 jobs with the tag x cancelled, 2 left running\n",
			`{"cancelled":5,"left":2}`, 0},
	} {
		for args, want := range map[string]string{c.args: c.says,
			c.args + " --json": c.document + "\n"} {
			asked.Store(0)
			if got := i.Run(c.status, words(args)...); got != want || asked.Load() != 2 {
				t.Errorf("%s asks %d times, and says %swant %s", args, asked.Load(), got, want)
			}
		}
	}
}
