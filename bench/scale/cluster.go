package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	servers = 3
	// more is how many policies are made while clients submit.
	more = 100
)

// natsCluster starts servers that keep copies of each other's streams.
func (b *bench) natsCluster(ctx context.Context) (all []*node, err error) {
	var routes []string
	for range servers {
		n, err := b.newNode()
		if err != nil {
			return all, err
		}
		n.replicas = servers
		all, routes = append(all, n), append(routes, "nats-route://"+n.http)
	}
	for i, n := range all {
		if err := b.beginServer(ctx, n, fmt.Sprintf("server_name: s%d\ncluster {name: c, "+
			"listen: %q, routes: [%s]}\n", i, n.http, strings.Join(routes, ", "))); err != nil {
			return all, err
		}
	}
	return all, all[0].until(ctx, glance, "the cluster has a leader", func() bool {
		_, err := all[0].js.AccountInfo(ctx)
		return err == nil
	})
}

func stopAll(nodes []*node) {
	for _, n := range nodes {
		n.stop()
	}
}

// cluster measures n policies with three copies of each stream, beside as many streams of a bare
// cluster, and submissions before and while more policies are made.
func (b *bench) cluster(ctx context.Context, n int) ([]figure, error) {
	both := [2][]*node{}
	for i := range both {
		var err error
		both[i], err = b.natsCluster(ctx)
		defer stopAll(both[i])
		if err != nil {
			return nil, err
		}
	}
	ours, bare := both[0], both[1][0]
	admitter, err := b.beginAdmitter(ctx, ours[0].url, servers, true,
		policyTexts(n, "http://127.0.0.1:9/"))
	defer admitter.stop()
	if err != nil {
		return nil, err
	}
	ready, err := admitter.twoTimes(ctx, n)
	if err != nil {
		return nil, err
	}
	bare.began = time.Now() // it has been there for a while
	made, err := bare.makeStreams(ctx, n)
	if err != nil {
		return nil, err
	}
	idle, err := b.idle(ctx, append(append(ours, admitter), both[1]...)...)
	if err != nil {
		return nil, err
	}
	ask, bareAsk := submit(admitter, "p00000"), publish(ctx, bare, "p00000")
	quiet, err := asked(ctx, ours[0], nil, ask)
	if err != nil {
		return nil, err
	}
	bareQuiet, err := asked(ctx, bare, nil, bareAsk)
	if err != nil {
		return nil, err
	}
	busy, err := whileMaking(ctx, n, ours[0], ask, admitter.morePolicy)
	if err != nil {
		return nil, err
	}
	bareBusy, err := whileMaking(ctx, n, bare, bareAsk, func(ctx context.Context, i int) error {
		return bare.makeStream(ctx, fmt.Sprintf("p%05d", i))
	})
	return append([]figure{
		{"first start: ready", "s", ready[0], made},
		{"first start: all drained", "s", ready[1], made},
		{"submissions", "/s", quiet[0], bareQuiet[0]},
		{"p99", "ms", quiet[1], bareQuiet[1]},
		{"submissions while 100 policies are made", "/s", busy[0], bareBusy[0]},
		{"p99 then", "ms", busy[1], bareBusy[1]},
	}, atRest([]taken{sum(idle[:servers+1]), sum(idle[servers+1:])})...), err
}

// whileMaking has clients ask while more policies, or streams, are made.
func whileMaking(ctx context.Context, n int, server *node, ask func(key string) error,
	make func(ctx context.Context, i int) error) (measured [4]float64, err error) {
	making, ctx := errgroup.WithContext(ctx)
	making.SetLimit(8)
	var all sync.WaitGroup
	all.Go(func() {
		for i := range more {
			making.Go(func() error { return make(ctx, n+i) })
		}
	})
	measured, err = asked(ctx, server, nil, ask)
	all.Wait()
	if failed := making.Wait(); failed != nil {
		err = failed
	}
	return measured, err
}

func sum(all []taken) (t taken) {
	for _, x := range all {
		t.cpu, t.memory, t.heap = t.cpu+x.cpu, t.memory+x.memory, t.heap+x.heap
		t.goroutines += x.goroutines
	}
	return t
}
