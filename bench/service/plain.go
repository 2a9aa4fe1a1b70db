package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/queue/embedded"
)

// role: the server that others are compared with
const plainCommand = "plain"

const plainAnswer = `{"verdict":"queued","job":"paced:1234567","delay_ms":1234}` + "\n"

// plain answers over net/http, and at the NATS server of an admitter. It ends with its parent.
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
		_ = m.Respond([]byte(plainAnswer))
	})
	if err != nil {
		return err
	}
	if err := nc.Flush(); err != nil {
		return err
	}
	floor, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	publishes, err := publishing(server)
	if err != nil {
		return err
	}
	go func() { _ = serve(floor, publishes) }()
	fmt.Printf("ready http=%s floor=%s nats=%s\n", listener.Addr(), floor.Addr(), server.URL())
	return serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			answer(w, plainAnswer)
		}
	}))
}

func serve(listener net.Listener, handler http.Handler) error {
	return (&http.Server{ReadHeaderTimeout: time.Minute, Handler: handler}).Serve(listener)
}

func answer(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusAccepted)
	_, _ = io.WriteString(w, text)
}

// publishing is a minimal submission: net/http and JetStream's client. It answers when a body is
// stored. A consumer holds the messages like a drainer.
func publishing(server *embedded.Server) (http.Handler, error) {
	nc, err := server.Connect()
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	for _, name := range []string{"held", "pulled"} {
		if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name,
			Subjects: []string{name + ".*"}, Retention: jetstream.WorkQueuePolicy}); err != nil {
			return nil, err
		}
	}
	consumer, err := js.CreateConsumer(ctx, "pulled", jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Hour, MaxAckPending: -1})
	if err == nil {
		_, err = consumer.Consume(func(jetstream.Msg) {})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		subject := strings.ReplaceAll(r.URL.Path[1:], "/", ".")
		stored, err := js.Publish(r.Context(), subject, body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		answer(w, fmt.Sprintf(`{"verdict":"queued","job":"%s:%d"}`+"\n", stored.Stream,
			stored.Sequence))
	}), err
}
