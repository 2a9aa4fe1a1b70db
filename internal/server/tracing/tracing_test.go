package tracing

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/penstock-mq/penstock/workers"
)

const carriedTrace = "0af7651916cd43dd8448eb211c80319c"

func attempt(t *testing.T, header nats.Header, waited time.Duration) tracetest.SpanStubs {
	t.Helper()
	kept := tracetest.NewInMemoryExporter()
	tracer := of(sdk.NewTracerProvider(sdk.WithSyncer(kept)))
	accepted := time.Date(2026, 11, 23, 14, 0, 0, 0, time.UTC)
	_, job, end := tracer.Attempt()(t.Context(), workers.Job{Policy: "mail", ID: "mail:1",
		Header: header, Attempt: 1, Accepted: accepted, Started: accepted.Add(waited)})
	end(nil)
	spans := kept.GetSpans()
	if parent := carrier(job.Header).Get("traceparent"); parent != "00-"+
		spans[len(spans)-1].SpanContext.TraceID().String()+"-"+
		spans[len(spans)-1].SpanContext.SpanID().String()+"-01" {
		t.Errorf("the handler is told %s", parent)
	}
	given, told := carrier(header).Get("traceparent"), carrier(job.Header).Get("traceparent")
	if given == told {
		t.Error("the stored header was changed")
	}
	return spans
}

// A wait beyond the retention of traces is no span: the attempt begins a trace with a link to the
// job's.
func TestALongWaitIsALink(t *testing.T) {
	header := nats.Header{"Traceparent": {"00-" + carriedTrace + "-b7ad6b7169203331-01"}}
	short := attempt(t, header, longest)
	if len(short) != 2 || short[0].Name != "wait mail" || short[1].Name != "attempt mail" ||
		short[0].SpanContext.TraceID().String() != carriedTrace ||
		short[1].SpanContext.TraceID().String() != carriedTrace || len(short[1].Links) != 0 {
		t.Errorf("a short wait: %+v", short)
	}
	long := attempt(t, header, longest+time.Second)
	if len(long) != 1 || long[0].Parent.IsValid() || len(long[0].Links) != 1 ||
		long[0].Links[0].SpanContext.TraceID().String() != carriedTrace ||
		long[0].SpanContext.TraceID().String() == carriedTrace {
		t.Errorf("a long wait: %+v", long)
	}
	// A job without a trace gets a new one.
	alone := attempt(t, nil, time.Second)
	if len(alone) != 2 || alone[1].Parent.SpanID() != alone[0].SpanContext.SpanID() {
		t.Errorf("a job without a trace: %+v", alone)
	}
}
