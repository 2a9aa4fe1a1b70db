package natsapi

import (
	"reflect"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/admission/answer"
	"github.com/penstock-mq/penstock/queue/job"
)

const StatusHeader = job.HeaderStatus

func (s *server) decode(endpoint, subject string) (string, job.Key, error) {
	policy, form, ok := s.names.ParseRequest(endpoint, subject)
	if !ok {
		return "", "", &admission.RequestError{Field: "subject", Reason: "names no policy"}
	}
	key, err := job.ParseKey(form)
	if err != nil {
		return "", "", admission.InvalidKey(err)
	}
	return policy, key, nil
}

// headerLost rejects a request whose unreadable headers the client library left out: without its
// Idempotency-Key it would be a different job. micro hides the message, whose size reveals the
// loss.
func headerLost(r micro.Request) error {
	field := reflect.Indirect(reflect.ValueOf(r)).FieldByName("msg")
	if !field.IsValid() || r.Headers() != nil {
		return nil
	}
	m := (*nats.Msg)(field.UnsafePointer())
	if m.Size() > len(m.Subject)+len(m.Reply)+len(m.Data) {
		return &admission.RequestError{Field: "headers",
			Reason: "cannot be read: one line for each, " +
				"NAME: VALUE, without control characters"}
	}
	return nil
}

func encode(a answer.Answer) micro.Headers {
	h := make(micro.Headers, len(a.Header)+1)
	h[StatusHeader] = []string{strconv.Itoa(a.Status)}
	for _, field := range a.Header {
		h[field.Name] = []string{field.Value}
	}
	return h
}
