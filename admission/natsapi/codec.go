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

// StatusHeader carries an answer's status, the one that the same request would have over HTTP.
const StatusHeader = job.HeaderStatus

// decode reads the policy and the key from a request's subject, which parse takes apart.
func decode(parse func(subject string) (policy, key string, ok bool),
	subject string) (string, job.Key, error) {
	policy, form, ok := parse(subject)
	if !ok {
		return "", "", &admission.RequestError{Field: "subject", Reason: "names no policy"}
	}
	key, err := job.ParseKey(form)
	if err != nil {
		return "", "", admission.InvalidKey(err)
	}
	return policy, key, nil
}

// headerLost refuses a request whose headers the client library could not read: it hands such a
// message on without them, and a job without its Idempotency-Key is another job. micro keeps the
// message, which tells by its size, to itself.
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

// encode makes an answer's headers. NATS keeps the case of names, so they are spelled as
// documented.
func encode(a answer.Answer) micro.Headers {
	h := make(micro.Headers, len(a.Header)+1)
	h[StatusHeader] = []string{strconv.Itoa(a.Status)}
	for _, field := range a.Header {
		h[field.Name] = []string{field.Value}
	}
	return h
}
