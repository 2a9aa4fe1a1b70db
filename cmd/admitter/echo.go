package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/penstock-mq/penstock/internal/base/buildinfo"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
)

const mostShown = 60

// echo is a target for trials.
func echo(out io.Writer) http.Handler {
	var mu sync.Mutex
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, mostShown+1))
		if err == nil {
			_, err = io.Copy(io.Discard, r.Body)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		shown := fmt.Sprintf("%q", body)
		if len(body) > mostShown {
			shown = fmt.Sprintf("%q…", body[:mostShown])
		}
		what := "a request" // of a worker or a proxied caller
		if id := r.Header.Get(job.HeaderJob); id != "" {
			what = fmt.Sprintf("job %s of %q started, attempt %s", id, r.Header.Get(job.HeaderKey),
				r.Header.Get(job.HeaderAttempt))
		}
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, "%s  %s: %s %s %s\n", time.Now().Format("15:04:05.000"), what, r.Method,
			r.URL.Path, shown)
	})
}

// banner returns the policies and three commands to try.
func banner(address, nats string, set inforce.Entries) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nPenstock %s serves HTTP at http://%s and NATS at %s.\nIts console is "+
		"http://%[2]s/console/. Policies:\n\n", buildinfo.Version(), address, nats)
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	var queued, checked string
	for _, name := range slices.Sorted(maps.Keys(set)) {
		entry := set[name]
		if entry.Draining {
			continue
		}
		fmt.Fprintf(table, "  %s\t%s", name, numbers(entry.Policy))
		if entry.Paused {
			fmt.Fprintf(table, "\tPAUSED: curl -X POST http://%s/v1/resume/%s", address, name)
		}
		fmt.Fprintln(table)
		switch {
		case queued == "" && entry.Policy.Paced() && !entry.Paused:
			queued = name
		case checked == "" && !entry.Policy.HasQueue():
			checked = name
		}
	}
	_ = table.Flush()
	if queued+checked != "" {
		b.WriteString("\nTry, in another terminal:\n\n")
	}
	jobs := fmt.Sprintf("http://%s/v1/jobs/%s/customer-1", address, queued)
	if queued != "" {
		fmt.Fprintf(&b, "  curl -i -d hello %s\n", jobs)
		fmt.Fprintf(&b,
			"  for i in 1 2 3 4 5 6; do curl -d \"job $i\" %s; done   # they start at their rate, "+
				"below\n", jobs)
	}
	if checked != "" {
		fmt.Fprintf(&b, "  curl -i -X POST http://%s/v1/check/%s/customer-1\n", address, checked)
	}
	b.WriteString("\nRequests to the echo target appear here. Press Ctrl-C to stop.\n\n")
	return b.String()
}

func numbers(p policy.Policy) string {
	switch {
	case len(p.Limits) > 0:
		return fmt.Sprintf("%d limits", len(p.Limits))
	case p.Algorithm == policy.LeakingBucket && p.OutflowTotal.IsZero():
		return fmt.Sprintf("leaking bucket: %s per key, %d wait", p.Outflow, p.Capacity)
	case p.Algorithm == policy.LeakingBucket:
		return fmt.Sprintf("leaking bucket: %s in total, %d wait per key", p.OutflowTotal,
			p.Capacity)
	}
	name, b := strings.ReplaceAll(string(p.Algorithm), "_", " "), p.AtDoor().Bound()
	if b.Window == 0 {
		return fmt.Sprintf("%s: %s per key, bursts of %d", name, b.Rate, b.Units)
	}
	return fmt.Sprintf("%s: %d in %s per key", name, b.Units, policy.Duration(b.Window))
}
