// Command demo shows Penstock's main job with real processes in less than a minute:
//
//	make demo
//
// It starts an API that allows 50 requests in any second, an admitter with its NATS server, and two
// drainers. It sends 1,200 jobs, half over HTTP and half as plain publishes, to a bucket that has
// the API's limit, counted from the answer, and holds 800, and kills its owner in the middle. For
// comparison, as many jobs go to a second such API with the same limit, counted from the start. It
// prints the results, and exits 1 if a law was broken.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/penstock-mq/penstock/queue"
)

const (
	policyName = "demo"
	fromStart  = "demo-from-start"
	bucketKey  = queue.Key("customer-1")
	partitions = 8
	outflow    = apiLimit
	peak       = 1.0125 * outflow // a policy's default
	burstSize  = 1
	capacity   = 800
	apiLimit   = 50
	apiWindow  = time.Second
	apiTakes   = 20 * time.Millisecond
	lease      = 2 * time.Second
	maxDelay   = time.Second // a policy's default
)

// bursts follow a trickle. Then the bucket is never empty until the end; the last two do not fit.
var (
	trickle = burst{jobs: 20, gap: 100 * time.Millisecond}
	bursts  = []burst{
		{after: 2 * time.Second, jobs: 560},
		{after: 5 * time.Second, jobs: 420},
		{after: 6 * time.Second, jobs: 200},
	}
)

const mostTime = 50 * time.Second

func main() {
	admitter := flag.String("admitter", "bin/admitter", "the admitter's `program`")
	drainer := flag.String("drainer", "bin/drainer", "the drainer's `program`")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM,
		syscall.SIGHUP)
	defer stop()
	out := newScreen(os.Stdout)
	broken, err := run(ctx, *admitter, *drainer, out)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(out, "interrupted")
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(out, "demo:", err)
		os.Exit(1)
	case len(broken) > 0:
		os.Exit(1)
	}
}

func run(ctx context.Context, admitter, drainer string, out *screen) (broken []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, mostTime)
	defer cancel()
	dir, err := os.MkdirTemp("", "penstock-demo-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	defer os.RemoveAll(dir)

	machine := watchMachine(ctx)
	api, second := newAPI(apiLimit, apiWindow, apiTakes), newAPI(apiLimit, apiWindow, apiTakes)
	target, err := api.serve(ctx)
	if err != nil {
		return nil, err
	}
	other, err := second.serve(ctx)
	if err != nil {
		return nil, err
	}
	out.say("a third-party API at %s allows %d requests in any second", target, apiLimit)
	p := &penstock{}
	defer p.kill()
	if err := p.start(ctx, dir, admitter, drainer, target, other, out); err != nil {
		return nil, err
	}

	s := &scene{penstock: p, api: api, second: second, traffic: newTraffic(p.httpURL, p.js),
		machine: machine, out: out}
	err = s.play(ctx)
	late := errors.Is(ctx.Err(), context.DeadlineExceeded)
	if err != nil && !late {
		return nil, err
	}
	stopped := p.stop()
	broken = s.report(out)
	if stopped != nil {
		broken = append(broken, fmt.Sprintf("a planned stop ends with status 0: %v", stopped))
	}
	if late {
		broken = append(broken, fmt.Sprintf("the jobs were not all done within %v", mostTime))
	}
	verdict(out, broken, p)
	return broken, nil
}

func verdict(out io.Writer, broken []string, p *penstock) {
	fmt.Fprintln(out)
	if len(broken) == 0 {
		fmt.Fprintln(out, "All laws held.")
		return
	}
	for _, law := range broken {
		fmt.Fprintln(out, "BROKEN:", law)
	}
	for _, c := range p.children() {
		fmt.Fprintf(out, "\nlog of %s:\n%s", c.name, c.Log)
	}
}
