package queue

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestStoreFailuresAreTheServers pins the texts by which a full bucket and a full stream differ, and the codes that nats.go
// does not name.
func TestStoreFailuresAreTheServers(t *testing.T) {
	for _, c := range []struct {
		text string
		want error
	}{
		{server.ErrMaxMsgsPerSubject.Error(), ErrFull},
		{server.ErrMaxMsgs.Error(), ErrStreamFull},
		{server.ErrMaxBytes.Error(), ErrStreamFull},
		{server.ErrStoreClosed.Error(), ErrUnavailable},
	} {
		theirs := server.NewJSStreamStoreFailedError(errors.New(c.text))
		err := translate(&apiError{Code: theirs.Code, ErrCode: int(theirs.ErrCode), Description: theirs.Description})
		if !errors.Is(err, c.want) {
			t.Errorf("%q is %v, want %v", c.text, err, c.want)
		}
	}
	for code, theirs := range map[int]server.ErrorIdentifier{
		codeStreamNotFound:        server.JSStreamNotFoundErr,
		codeConsumerNotFound:      server.JSConsumerNotFoundErr,
		codeMessageNotFound:       server.JSNoMessageFoundErr,
		codeNameInUse:             server.JSStreamNameExistErr,
		codeMessageTooLarge:       server.JSStreamMessageExceedsMaximumErr,
		codeWrongLastSequence:     server.JSStreamWrongLastSequenceErrF,
		codeWrongLastSequenceR3:   server.JSStreamWrongLastSequenceConstantErr,
		codeStoreFailed:           server.JSStreamStoreFailedF,
		codeDuplicateInFlight:     server.JSStreamDuplicateMessageConflict,
		codeInsufficientResources: server.JSInsufficientResourcesErr,
		codeWorkQueueUnfiltered:   server.JSConsumerWQMultipleUnfilteredErr,
		codeWorkQueueFilter:       server.JSConsumerWQConsumerNotUniqueErr,
	} {
		if code != int(theirs) {
			t.Errorf("code %d is %d at the server", code, theirs)
		}
	}
}

func TestTranslate(t *testing.T) {
	for _, c := range []struct {
		err, want error
	}{
		{&apiError{Code: 400, ErrCode: codeWrongLastSequence}, ErrConflict},
		{&apiError{Code: 400, ErrCode: codeWrongLastSequenceR3}, ErrConflict},
		{&jetstream.APIError{Code: 400, ErrorCode: codeWrongLastSequenceR3}, ErrConflict},
		{&apiError{Code: 409, ErrCode: codeDuplicateInFlight}, ErrUnavailable},
		{&apiError{Code: 503, ErrCode: 1}, ErrUnavailable},
		{fmt.Errorf("x: %w", jetstream.ErrStreamNotFound), ErrNoStream},
		{nats.ErrMaxPayload, ErrTooLarge},
		{nats.ErrNoResponders, ErrUnavailable},
		{context.DeadlineExceeded, ErrUnavailable},
		{fmt.Errorf("x: %w", ErrFull), ErrFull},
	} {
		got := translate(c.err)
		if !errors.Is(got, c.want) || !errors.Is(got, c.err) {
			t.Errorf("translate(%v) = %v, want one that is %v", c.err, got, c.want)
		}
	}
	if translate(nil) != nil {
		t.Error("no error became one")
	}
}

func TestPublishRefusal(t *testing.T) {
	refused := func(code int, text string) string {
		return fmt.Sprintf(`{"error":{"code":503,"err_code":%d,"description":%q},"stream":"S","seq":0}`, code, text)
	}
	for reply, want := range map[string]error{
		refused(codeStoreFailed, textMaxMsgsPerSubject): ErrFull,
		refused(codeStoreFailed, textMaxMsgs):           ErrStreamFull,
		refused(codeMessageTooLarge, "too large"):       ErrTooLarge,
		refused(codeWrongLastSequence, "wrong"):         ErrConflict,
		refused(10001, "new"):                           ErrUnavailable,
	} {
		if err := PublishRefusal([]byte(reply)); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", reply, err, want)
		}
	}
	for _, reply := range []string{
		"", "ok", "null", "[]", `"error"`, `{}`, `{"stream":"S","seq":4}`, `{"stream":"S","seq":4,"duplicate":true}`,
		`{"error":"not today"}`, `{"error":{"code":500,"description":"not today"}}`, `{"error":null}`, `{"error":{"err_code":7}}`,
	} {
		if err := PublishRefusal([]byte(reply)); err != nil {
			t.Errorf("%s: %v", reply, err)
		}
	}
}
