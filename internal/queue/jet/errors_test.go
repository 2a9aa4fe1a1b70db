package jet

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/queue/jsapi"
)

// JetStream would not answer.
func TestNothingIsWrittenWhileTheDiskIsFull(t *testing.T) {
	b := newBroker(t)
	s := Schedule{Policy: "mail", Key: "a", Name: "n", When: "@hourly"}
	if err := b.Schedules().Put(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	b.Refuse(errors.New("the disk is full"))
	_, policy := b.Tables().Policies.Put(t.Context(), "mail", []byte("{}"), 0)
	for what, err := range map[string]error{"a schedule": b.Schedules().Put(t.Context(), s),
		"a policy": policy} {
		if !errors.Is(err, ErrStorage) {
			t.Errorf("%s: %v", what, err)
		}
	}
	b.Refuse(nil)
	if err := b.Schedules().Put(t.Context(), s); err != nil {
		t.Error(err)
	}
}

func TestPublishRefusal(t *testing.T) {
	refused := func(code jetstream.ErrorCode, text string) string {
		return fmt.Sprintf(
			`{"error":{"code":503,"err_code":%d,"description":%q},"stream":"S","seq":0}`, code,
			text)
	}
	for reply, want := range map[string]error{
		refused(jsapi.CodeStoreFailed, server.ErrMaxMsgsPerSubject.Error()):  ErrFull,
		refused(jsapi.CodeStoreFailed, server.ErrMaxMsgs.Error()):            ErrStreamFull,
		refused(jetstream.JSErrCodeStreamMessageExceedsMaximum, "too large"): ErrTooLarge,
		refused(jetstream.JSErrCodeStreamWrongLastSequence, "wrong"):         ErrConflict,
		refused(10001, "new"): ErrUnavailable,
	} {
		if err := PublishRefusal([]byte(reply)); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", reply, err, want)
		}
	}
	for _, reply := range []string{
		"", "ok", "null", "[]", `"error"`, `{}`, `{"stream":"S","seq":4}`,
		`{"stream":"S","seq":4,"duplicate":true}`,
		`{"error":"not today"}`, `{"error":{"code":500,"description":"not today"}}`,
		`{"error":null}`, `{"error":{"err_code":7}}`,
	} {
		if err := PublishRefusal([]byte(reply)); err != nil {
			t.Errorf("%s: %v", reply, err)
		}
	}
}
