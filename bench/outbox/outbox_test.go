// Package outbox measures transactions that insert a row and a job, and the speed of a relay.
package outbox

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/internal/kit/pgtest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/outbox"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/embedded"
)

type args struct{ Body string }

func (args) Kind() string { return "bench" }

var body = []byte(`{"body":"0123456789012345678901234567890123456789"}`)

func database(b *testing.B) *pgxpool.Pool {
	db, err := pgxpool.New(b.Context(), pgtest.Start(b).At)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(db.Close)
	for _, schema := range []string{outbox.Schema,
		"CREATE TABLE orders (id bigserial, text text)"} {
		if _, err := db.Exec(b.Context(), schema); err != nil {
			b.Fatal(err)
		}
	}
	return db
}

func transactions(b *testing.B, db *pgxpool.Pool, insert func(context.Context, pgx.Tx) error) {
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := pgx.BeginFunc(b.Context(), db, func(tx pgx.Tx) error {
				_, err := tx.Exec(b.Context(), "INSERT INTO orders (text) VALUES ('an order')")
				if err == nil {
					err = insert(b.Context(), tx)
				}
				return err
			}); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tx/s")
}

// BenchmarkInsert compares transactions with a job in the outbox, with a job in River, and without
// a job.
func BenchmarkInsert(b *testing.B) {
	db := database(b)
	driver := riverpgxv5.New(db)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := migrator.Migrate(b.Context(), rivermigrate.DirectionUp, nil); err != nil {
		b.Fatal(err)
	}
	rivers, err := river.NewClient(driver, &river.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("none", func(b *testing.B) {
		transactions(b, db, func(context.Context, pgx.Tx) error { return nil })
	})
	b.Run("outbox", func(b *testing.B) {
		transactions(b, db, func(ctx context.Context, tx pgx.Tx) error {
			return outbox.Insert(ctx, tx, penstock.Job{Policy: "bench", Body: body})
		})
	})
	b.Run("river", func(b *testing.B) {
		transactions(b, db, func(ctx context.Context, tx pgx.Tx) error {
			_, err := rivers.InsertTx(ctx, tx, args{string(body)}, nil)
			return err
		})
	})
}

// BenchmarkRelay measures one relay, with jobs of 100 keys or of one, and with more waiting jobs
// than are measured.
func BenchmarkRelay(b *testing.B) {
	for _, keys := range []int{100, 1} {
		for _, waiting := range []int{0, 100_000} {
			b.Run(fmt.Sprintf("keys=%d/waiting=%d", keys, waiting), func(b *testing.B) {
				relay(b, keys, waiting)
			})
		}
	}
}

func relay(b *testing.B, keys, waiting int) {
	db := database(b)
	p, err := penstock.Open(b.Context(), penstock.Options{AdmitOnly: true,
		Server: embedded.Options{Dir: b.TempDir()},
		Policies: []policy.Policy{{Name: "bench", MaxJobs: 10_000_000,
			Rule: policy.Rule{Algorithm: policy.LeakingBucket,
				Outflow: penstock.MustRate("1/s"), Capacity: 1_000_000}}}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.Close)
	const insert = `INSERT INTO penstock_outbox (policy, key, job, body)
		SELECT 'bench', i % $1, jsonb_build_object('IdempotencyKey', i::text), $2
		FROM generate_series(1, $3) AS i`
	if _, err := db.Exec(b.Context(), insert, keys, body, b.N+waiting); err != nil {
		b.Fatal(err)
	}
	if _, err := db.Exec(b.Context(), "VACUUM ANALYZE penstock_outbox"); err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error)
	b.ResetTimer()
	go func() { ended <- (&outbox.Relay{DB: db, Jobs: p}).Run(ctx) }()
	waittest.Until(b, "the first ones are relayed", func() bool {
		wait := true
		row := db.QueryRow(b.Context(),
			"SELECT EXISTS (SELECT FROM penstock_outbox WHERE id <= $1)", b.N)
		return row.Scan(&wait) == nil && !wait
	})
	stop()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	left := 0
	row := db.QueryRow(b.Context(), "SELECT count(*) FROM penstock_outbox")
	if err := row.Scan(&left); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N+waiting-left)/b.Elapsed().Seconds(), "jobs/s")
}
