package main

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock-mq/penstock/internal/kit/pgtest"
)

type postgres struct {
	*pgtest.Server
	pool *pgxpool.Pool
}

func (p *postgres) open(ctx context.Context, dir string) (err error) {
	if p.Server, err = pgtest.Open(ctx, dir); err == nil {
		p.pool, err = pgxpool.New(ctx, p.At+" pool_max_conns=64")
	}
	return err
}

func (p *postgres) close() {
	if p.pool != nil {
		p.pool.Close()
	}
	if p.Server != nil {
		p.Stop()
	}
}
