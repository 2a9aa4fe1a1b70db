// Package tracing exports OpenTelemetry traces of jobs: the submission, the wait and each attempt
// are spans of the trace in the job's traceparent, or of a new one. The standard OTEL_ variables
// configure it.
//
// Only programs import it; libraries offer hooks.
package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
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
	"github.com/penstock-mq/penstock/internal/base/buildinfo"
	"github.com/penstock-mq/penstock/internal/base/seldom"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers"
)

const (
	// Trace stores close traces after some minutes: later attempts begin a new trace with a link.
	longest = 10 * time.Minute
	// for the last spans
	leave = 5 * time.Second
)

// Tracer makes spans; a nil Tracer makes no spans.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	context  propagation.TraceContext
}

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

// Open returns nil if the environment requests no traces. It does not connect; spans that the
// collector does not take are dropped.
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

func (t *Tracer) Close() error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), leave)
	defer cancel()
	return t.provider.Shutdown(ctx)
}

// carrier accepts names in any case.
type carrier nats.Header

func (c carrier) Get(name string) string { return job.HeaderValue(nats.Header(c), name) }
func (c carrier) Keys() []string         { return nil } // not used by W3C's propagator

func (c carrier) Set(name, value string) {
	for other := range c {
		if strings.EqualFold(other, name) {
			delete(c, other)
		}
	}
	c[name] = []string{value}
}

func (t *Tracer) carried(ctx context.Context, h nats.Header) context.Context {
	return t.context.Extract(ctx, carrier(h))
}

// Submitting is [penstock.Options.Submitting] with a span that the stored job carries; nil without
// a tracer.
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

func fail(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// Attempt is [workers.Options.Attempt] with a span, and before the first attempt one for the wait;
// nil without a tracer.
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
			from = t.waited(from, j.Policy, j.Accepted, j.Started, nil, about)
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

// waited returns the context for the next span: a sibling, or a child if the context carries no
// trace.
func (t *Tracer) waited(from context.Context, policy string, since, until time.Time, err error,
	about trace.SpanStartEventOption) context.Context {
	ctx, span := t.tracer.Start(from, "wait "+policy, about, trace.WithTimestamp(since))
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End(trace.WithTimestamp(until))
	if trace.SpanContextFromContext(from).IsValid() {
		return from
	}
	return ctx
}

// Calling is [outbound.Options.Trace] with a span for the wait and one for the upstream; nil
// without a tracer.
func (t *Tracer) Calling() func(policy, key string, since time.Time, from, to http.Header,
	err error) func(int, error) {
	if t == nil {
		return nil
	}
	return func(policy, key string, since time.Time, from, to http.Header,
		err error) func(int, error) {

		about := trace.WithAttributes(attribute.String("penstock.policy", policy),
			attribute.String("penstock.key", key))
		caller := t.context.Extract(context.Background(), propagation.HeaderCarrier(from))
		ctx := t.waited(caller, policy, since, time.Now(), err, about)
		if err != nil {
			return nil
		}
		ctx, span := t.tracer.Start(ctx, "call "+policy, about,
			trace.WithSpanKind(trace.SpanKindClient))
		if trace.SpanContextFromContext(caller).IsValid() {
			t.context.Inject(ctx, propagation.HeaderCarrier(to))
		}
		return func(status int, err error) {
			span.SetAttributes(attribute.Int("http.response.status_code", status))
			fail(span, err)
		}
	}
}
