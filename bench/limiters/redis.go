package main

import (
	"context"
	"errors"
	"fmt"
)

// redisTurn lengthens measurements, for samples in the last percentile.
const redisTurn = 4

// with the least ratio to the peer
type redisKeySet struct {
	keySet
	least float64
}

var redisKeySets = []redisKeySet{
	{keySet{title: "1,000 keys", keys: 1000}, 2.5},
	{keySet{title: "One key", keys: 1}, 8},
}

func (b *bench) redis(ctx context.Context) (_ []table, err error) {
	server, err := startRedis()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	about, err := server.info(ctx, "server")
	if err != nil {
		return nil, err
	}
	tables, err := b.redisSpeed(ctx, server, about["redis_version"])
	if err != nil {
		return nil, err
	}
	b.say("redis: refusals")
	flood, err := b.flood(ctx, server)
	if err != nil {
		return nil, err
	}
	b.say("redis: bytes per key")
	weighed, err := weigh(ctx, server)
	if err != nil {
		return nil, err
	}
	return append(tables, flood, weightTable(weighed)), nil
}

func (b *bench) redisSpeed(ctx context.Context, server *redisServer,
	version string) ([]table, error) {
	all := redisContestants(server.Addr())
	measured := make([][]turns, len(redisKeySets))
	for i := range measured {
		measured[i] = make([]turns, len(all))
	}
	ceilings, err := b.ceilings(ctx, server, all)
	if err != nil {
		return nil, err
	}
	for round := range b.rounds {
		b.say("redis: round %d of %d", round+1, b.rounds)
		for i, set := range redisKeySets {
			for j, c := range all {
				s, err := b.serve(ctx, server, c, set.keySet)
				if err != nil {
					return nil, fmt.Errorf("%s, %s, %s: %w", c.name, c.algorithm, set.title, err)
				}
				measured[i][j] = append(measured[i][j], s)
			}
		}
		for _, ceiling := range ceilings {
			if err := ceiling.measure(ctx, server, b.length); err != nil {
				return nil, fmt.Errorf("ceiling of %s: %w", ceiling.algorithm, err)
			}
		}
	}
	var tables []table
	for i, set := range redisKeySets {
		t := speedTable(set, all, measured[i])
		t.title += ", Redis " + version
		tables = append(tables, t)
	}
	return append(tables, ceilingTable(ceilings, all, measured[0])), nil
}
