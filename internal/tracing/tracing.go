// Package tracing sends OpenTelemetry traces of jobs: their submission, their wait and each attempt
// are spans of the trace that a job carries in traceparent, or of one that begins with it. The
// standard variables say where to and which (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_SAMPLER,
// OTEL_SERVICE_NAME, …); without them there are no traces, and nothing of it runs.
//
// Only the programs import it. What libraries have of it are hooks: penstock.Observer.Submitting
// and workers.Observer.Attempt.
package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/buildinfo"
	"github.com/penstock-mq/penstock/internal/seldom"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers"
)

const (
	// longest is for how long after a job was stored its attempts are spans of its trace. What
	// keeps traces puts them away some minutes after they began, so later ones begin a trace of
	// their own, with a link to the job's.
	longest = 10 * time.Minute
	// leave bounds how long the last spans may take to be sent.
	leave = 5 * time.Second
)

// Tracer makes spans. A nil one makes none.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	context  propagation.TraceContext
}

// asked reports whether the environment asks for traces.
func asked() (bool, error) {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	endpoint := os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") +
		os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	switch exporter := os.Getenv("OTEL_TRACES_EXPORTER"); {
	case exporter == "none" || exporter == "" && endpoint == "":
		return false, nil
	case exporter != "" && exporter != "otlp":
		return false, fmt.Errorf("OTEL_TRACES_EXPORTER is %q: want otlp or none", exporter)
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
		"OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if protocol := os.Getenv(name); protocol != "" && protocol != "http/protobuf" {
			return false, fmt.Errorf("%s is %q: want http/protobuf, which collectors take at port "+
				"4318", name, protocol)
		}
	}
	return true, nil
}

// Open returns the tracer of a program, nil if the environment asks for none. It does not connect:
// a collector may come later, and spans that it does not take are dropped.
func Open(ctx context.Context, program string, log *slog.Logger) (*Tracer, error) {
	if yes, err := asked(); err != nil || !yes {
		return nil, err
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("prepare traces: %w", err)
	}
	lines := seldom.New(log)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		lines.Log("traces", slog.LevelWarn, "traces are not sent", "error", err)
	}))
	about, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", "penstock-"+program),
		attribute.String("service.version", buildinfo.Version())),
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("prepare traces: %w", err)
	}
	return of(sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about))), nil
}

func of(provider *sdk.TracerProvider) *Tracer {
	return &Tracer{provider: provider,
		tracer: provider.Tracer("github.com/penstock-mq/penstock")}
}

// Close sends what is left.
func (t *Tracer) Close() error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), leave)
	defer cancel()
	return t.provider.Shutdown(ctx)
}

// carrier is a stored job's header, whose names have any case.
type carrier nats.Header

func (c carrier) Get(name string) string { return job.HeaderValue(nats.Header(c), name) }
func (c carrier) Keys() []string         { return nil } // of no use to the W3C's context

func (c carrier) Set(name, value string) {
	for other := range c {
		if strings.EqualFold(other, name) {
			delete(c, other)
		}
	}
	c[name] = []string{value}
}

// carried is a context with what a header says of a trace.
func (t *Tracer) carried(ctx context.Context, h nats.Header) context.Context {
	return t.context.Extract(ctx, carrier(h))
}

// Submitting is [penstock.Observer.Submitting]: a span for the submission, which the stored job
// carries from then on; nil for no tracer.
func (t *Tracer) Submitting() func(string, nats.Header) (nats.Header,
	func(admission.Outcome, error)) {
	if t == nil {
		return nil
	}
	return func(policy string, stored nats.Header) (nats.Header, func(admission.Outcome, error)) {
		ctx, span := t.tracer.Start(t.carried(context.Background(), stored), "submit "+policy,
			trace.WithSpanKind(trace.SpanKindProducer),
			trace.WithAttributes(attribute.String("penstock.policy", policy)))
		if stored == nil {
			stored = nats.Header{}
		}
		t.context.Inject(ctx, carrier(stored))
		return stored, func(o admission.Outcome, err error) {
			span.SetAttributes(attribute.String("penstock.verdict", string(o.Verdict)),
				attribute.String("penstock.job", o.Job),
				attribute.Bool("penstock.duplicate", o.Duplicate))
			fail(span, err)
		}
	}
}

// fail ends a span.
func fail(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// Attempt is [workers.Observer.Attempt]: a span for the attempt, before the first one of a job also
// one for its wait. The handler, and so the target, is in the attempt's; nil for no tracer.
func (t *Tracer) Attempt() func(context.Context, workers.Job) (context.Context, workers.Job,
	func(error)) {
	if t == nil {
		return nil
	}
	return func(ctx context.Context, j workers.Job) (context.Context, workers.Job, func(error)) {
		about := trace.WithAttributes(attribute.String("penstock.policy", j.Policy),
			attribute.String("penstock.job", j.ID), attribute.String("penstock.key", j.Key.Raw()),
			attribute.Int("penstock.attempt", j.Attempt),
			attribute.Int64("penstock.wait_ms", j.Started.Sub(j.Accepted).Milliseconds()))
		options := []trace.SpanStartOption{about, trace.WithSpanKind(trace.SpanKindConsumer),
			trace.WithTimestamp(j.Started)}
		from := t.carried(ctx, j.Header)
		switch submitted := trace.SpanContextFromContext(from); {
		case submitted.IsValid() && j.Started.Sub(j.Accepted) > longest:
			options = append(options, trace.WithNewRoot(),
				trace.WithLinks(trace.Link{SpanContext: submitted}))
		case j.Attempt == 1:
			var wait trace.Span
			from, wait = t.waited(from, submitted, j, about)
			wait.End(trace.WithTimestamp(j.Started))
		}
		ctx, span := t.tracer.Start(from, "attempt "+j.Policy, options...)
		if j.Header = maps.Clone(j.Header); j.Header == nil {
			j.Header = nats.Header{}
		}
		t.context.Inject(ctx, carrier(j.Header))
		return ctx, j, func(err error) {
			outcome := "done"
			switch _, throttled := workers.IsRetryAfter(err); {
			case throttled:
				outcome = "throttled"
			case workers.IsPermanent(err):
				outcome = "permanent"
			case err != nil:
				outcome = "failed"
			}
			span.SetAttributes(attribute.String("penstock.outcome", outcome))
			fail(span, err)
		}
	}
}

// waited begins the span of a job's wait, and returns the context for the span behind it: beside
// it, or below it when the job carries no trace.
func (t *Tracer) waited(from context.Context, submitted trace.SpanContext, j workers.Job,
	about trace.SpanStartEventOption) (context.Context, trace.Span) {
	ctx, span := t.tracer.Start(from, "wait "+j.Policy, about, trace.WithTimestamp(j.Accepted))
	if submitted.IsValid() {
		return from, span
	}
	return ctx, span
}
