package natsapi

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

// The caller chooses the answer's subject, and the service may publish to all of them.
func TestAnswersGoToNoSubjectOfPenstockOrTheServer(t *testing.T) {
	told := make(chan int, 8)
	r := start(t, fakeService{submit: func(admit.SubmitRequest) (admission.Outcome, error) {
		return admission.Outcome{Verdict: admission.Queued, Job: "mail:1"}, nil
	}}, Options{Answered: func(status int) { told <- status }})
	heard := make(chan *nats.Msg, 8)
	for _, subject := range []string{"penstock.jobs.>", "penstock.valve.>", "$KV.>", "mine.*"} {
		if _, err := r.client.ChanSubscribe(subject, heard); err != nil {
			t.Fatal(err)
		}
	}
	replies := []string{"penstock.jobs.stripe.k", "penstock.valve.stripe.0",
		"$KV.PENSTOCK_POLICIES.mail", "mine.1"}
	for _, reply := range replies {
		if err := r.client.PublishRequest("penstock.submit.mail.k", reply, nil); err != nil {
			t.Fatal(err)
		}
	}
	for range replies {
		<-told
	}
	ask(t, r.client, "penstock.submit.mail.k", "")
	if err := r.client.FlushTimeout(waittest.Patience()); err != nil {
		t.Fatal(err)
	}
	if m := <-heard; m.Subject != "mine.1" || len(heard) > 0 {
		t.Errorf("answered on %s, and %d more", m.Subject, len(heard))
	}
}
