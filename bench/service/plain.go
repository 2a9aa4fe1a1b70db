package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/queue/embedded"
)

// plainCommand makes this program the server that others are compared with.
const plainCommand = "plain"

// plainAnswer is as long as the answer to a job.
const plainAnswer = `{"verdict":"queued","job":"paced:1234567","delay_ms":1234}` + "\n"

// plain answers requests with nothing in between: net/http as it is, and a subscription at the same
// NATS server that an admitter has inside. It ends with its parent.
func plain() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server, err := embedded.Start(embedded.Options{Listen: "127.0.0.1:0"})
	if err != nil {
		return err
	}
	defer server.Shutdown()
	nc, err := server.Connect()
	if err != nil {
		return err
	}
	_, err = nc.Subscribe("plain", func(m *nats.Msg) {
		_ = m.Respond([]byte(plainAnswer)) // a client that waits in vain says so
	})
	if err != nil {
		return err
	}
	if err := nc.Flush(); err != nil {
		return err
	}
	fmt.Printf("ready http=%s nats=%s\n", listener.Addr(), server.URL())
	return (&http.Server{ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, plainAnswer) // when it fails the client is gone
		}), BaseContext: func(net.Listener) context.Context { return context.Background() },
	}).Serve(listener)
}
