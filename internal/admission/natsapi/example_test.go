package natsapi_test

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/admission/natsapi"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/queue/embedded"
)

type accepting struct{ natsapi.Service }

func (accepting) Submit(_ context.Context, r admit.SubmitRequest) (admission.Outcome, error) {
	return admission.Outcome{Verdict: admission.Allowed, Job: r.Policy + ":1",
		DelayKnown: true}, nil
}

func ExampleServe() {
	server, err := embedded.Start(embedded.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Shutdown()
	ours, err := server.Connect()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ours.Close()
	names, err := jet.NewNames("penstock")
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	started, ended := make(chan struct{}), make(chan error)
	part := natsapi.Serve(ours, names, accepting{},
		natsapi.Options{Started: func() { close(started) }})
	go func() { ended <- part(ctx) }()
	<-started

	theirs, err := server.Connect()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer theirs.Close()
	answer, err := theirs.Request("penstock.submit.stripe.acme", []byte("pay"), time.Minute)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(answer.Header.Get(natsapi.StatusHeader), string(answer.Data))
	stop()
	fmt.Println(<-ended)
	// Output:
	// 202 {"verdict":"allowed","job":"stripe:1","delay_ms":0}
	// <nil>
}
