package jsapi

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestStoreFailuresAreTheServers pins the descriptions of a full bucket and a full stream, and the
// codes that nats.go does not name.
const constant = jetstream.JSErrCodeStreamWrongLastSequenceConstant

func TestStoreFailuresAreTheServers(t *testing.T) {
	for _, c := range []struct {
		text string
		want error
	}{
		{server.ErrMaxMsgsPerSubject.Error(), ErrFull},
		{server.ErrMaxMsgs.Error(), ErrMostJobs},
		{server.ErrMaxMsgs.Error(), ErrStreamFull},
		{server.ErrMaxBytes.Error(), ErrStreamFull},
		{server.ErrStoreClosed.Error(), ErrUnavailable},
	} {
		theirs := server.NewJSStreamStoreFailedError(errors.New(c.text))
		err := Translate(&Refusal{Code: theirs.Code, ErrorCode: jetstream.ErrorCode(theirs.ErrCode),
			Description: theirs.Description})
		if !errors.Is(err, c.want) {
			t.Errorf("%q is %v, want %v", c.text, err, c.want)
		}
	}
	for code, theirs := range map[jetstream.ErrorCode]server.ErrorIdentifier{
		jetstream.JSErrCodeStreamNotFound:              server.JSStreamNotFoundErr,
		jetstream.JSErrCodeConsumerNotFound:            server.JSConsumerNotFoundErr,
		jetstream.JSErrCodeMessageNotFound:             server.JSNoMessageFoundErr,
		jetstream.JSErrCodeStreamNameInUse:             server.JSStreamNameExistErr,
		jetstream.JSErrCodeStreamMessageExceedsMaximum: server.JSStreamMessageExceedsMaximumErr,
		jetstream.JSErrCodeStreamWrongLastSequence:     server.JSStreamWrongLastSequenceErrF,
		constant:                  server.JSStreamWrongLastSequenceConstantErr,
		codeNoPeers:               server.JSClusterNoPeersErrF,
		CodeStoreFailed:           server.JSStreamStoreFailedF,
		codeDuplicateInFlight:     server.JSStreamDuplicateMessageConflict,
		codeInsufficientResources: server.JSInsufficientResourcesErr,
		CodeWorkQueueUnfiltered:   server.JSConsumerWQMultipleUnfilteredErr,
		CodeWorkQueueFilter:       server.JSConsumerWQConsumerNotUniqueErr,
	} {
		if int(code) != int(theirs) {
			t.Errorf("code %d is %d at the server", code, theirs)
		}
	}
}

func TestTranslate(t *testing.T) {
	for _, c := range []struct {
		err, want error
	}{
		{&Refusal{Code: 400, ErrorCode: jetstream.JSErrCodeStreamWrongLastSequence}, ErrConflict},
		{&Refusal{Code: 400, ErrorCode: constant}, ErrConflict},
		{&Refusal{Code: 409, ErrorCode: codeDuplicateInFlight}, ErrUnavailable},
		{&Refusal{Code: 503, ErrorCode: 1}, ErrUnavailable},
		{&Refusal{Code: 400, ErrorCode: codeNoPeers,
			Description: "no suitable peers for placement, peer offline"}, ErrUnavailable},
		{fmt.Errorf("x: %w", jetstream.ErrStreamNotFound), ErrNoStream},
		{nats.ErrMaxPayload, ErrTooLarge},
		{nats.ErrNoResponders, ErrUnavailable},
		{context.DeadlineExceeded, ErrUnavailable},
		{fmt.Errorf("x: %w", ErrFull), ErrFull},
	} {
		got := Translate(c.err)
		if !errors.Is(got, c.want) || !errors.Is(got, c.err) {
			t.Errorf("Translate(%v) = %v, want one that is %v", c.err, got, c.want)
		}
	}
	late := Translate(fmt.Errorf("create stream X: %w", context.DeadlineExceeded))
	if got := late.Error(); got != "unavailable: create stream X: no answer from NATS in time" {
		t.Errorf("a deadline is told as %q", got)
	}
	if Translate(nil) != nil {
		t.Error("no error became one")
	}
}
