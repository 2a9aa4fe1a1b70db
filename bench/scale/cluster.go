package main

import (
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	servers = 3
	more    = 100
)

func (b *bench) natsCluster() (all []*node) {
	var routes []string
	for range servers {
		n := b.node()
		n.replicas = servers
		all, routes = append(all, n), append(routes, "nats-route://"+n.http)
	}
	for i, n := range all {
		n.serve(fmt.Sprintf("server_name: s%d\ncluster {name: c, listen: %q, routes: [%s]}\n", i,
			n.http, strings.Join(routes, ", ")))
	}
	all[0].streams(0)
	return all
}

// cluster compares n policies with three copies to streams of a bare cluster, and submissions
// before and while more are made.
func (b *bench) cluster(n int) []figure {
	ours, others := b.natsCluster(), b.natsCluster()
	bare := others[0]
	admitter := b.admitterAt(ours[0].url, servers, true, policyTexts(n, "http://127.0.0.1:9/")...)
	ready, drained := admitter.ready(), admitter.drainsAll(n)
	bare.began = time.Now()
	made := bare.each(n, bare.makeStream)
	idle := b.idle(append(append(ours, admitter), others...)...)
	ask, bareAsk := submit(admitter, policyName(0)), publish(bare, policyName(0))
	quiet, bareQuiet := asked(ours[0], nil, ask), asked(bare, nil, bareAsk)
	busy := whileMaking(n, ours[0], ask, admitter.morePolicy)
	bareBusy := whileMaking(n, bare, bareAsk,
		func(i int) error { return bare.makeStream(policyName(i)) })
	return append([]figure{
		{"first start: ready", "s", ready, made},
		{"first start: all drained", "s", drained, made},
		{"submissions", "/s", quiet[0], bareQuiet[0]},
		{"p99", "ms", quiet[1], bareQuiet[1]},
		{"submissions while 100 policies are made", "/s", busy[0], bareBusy[0]},
		{"p99 then", "ms", busy[1], bareBusy[1]},
	}, atRest(sum(idle[:servers+1]), sum(idle[servers+1:]))...)
}

func whileMaking(n int, server *node, ask func(key string) error,
	makeOne func(i int) error) [4]float64 {
	var all, making errgroup.Group
	making.SetLimit(8)
	all.Go(func() error {
		for i := range more {
			making.Go(func() error { return makeOne(n + i) })
		}
		return making.Wait()
	})
	measured := asked(server, nil, ask)
	must(all.Wait())
	return measured
}

func sum(all []taken) (t taken) {
	for _, x := range all {
		t = taken{t.cpu + x.cpu, t.memory + x.memory, t.heap + x.heap, t.goroutines + x.goroutines}
	}
	return t
}
