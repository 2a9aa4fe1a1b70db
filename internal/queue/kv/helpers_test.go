package kv

import (
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
)

func tableOver(t testing.TB, nc *nats.Conn) *Table {
	t.Helper()
	js, err := jsapi.New(nc, "")
	if err != nil {
		t.Fatal(err)
	}
	table := New(js, "RECORDS", Options{}, slog.New(slog.DiscardHandler))
	if err := table.Ensure(natstest.Context(t), 1, 0); err != nil {
		t.Fatal(err)
	}
	return table
}

func newTable(t testing.TB) *Table {
	t.Helper()
	return tableOver(t, natstest.New(t))
}
