package outbox_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/kit/pgtest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/server/lifecycle"
	"github.com/penstock-mq/penstock/outbox"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers"
)

type world struct {
	t  *testing.T
	at string
	db *pgxpool.Pool
	p  *penstock.Penstock

	mu  sync.Mutex
	ran map[string][]string
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, at: pgtest.Start(t).At, ran: map[string][]string{}}
	var err error
	if w.db, err = pgxpool.New(t.Context(), w.at); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.db.Close)
	w.exec(outbox.Schema)
	w.exec(outbox.Schema)
	named := func(name, rate string, capacity int64) policy.Policy {
		// One at a time, because concurrent handlers may record their jobs in either order.
		return policy.Policy{Name: name, Concurrency: 1, Rule: policy.Rule{
			Algorithm: policy.LeakingBucket, Outflow: penstock.MustRate(rate), Capacity: capacity}}
	}
	w.p, err = penstock.Open(t.Context(), penstock.Options{Policies: []policy.Policy{
		named("mail", "10000/s", 1000), named("slow", "20/s", 2)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.p.Close)
	for _, name := range []string{"mail", "slow"} {
		w.p.Handle(name, func(_ context.Context, j workers.Job) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			text := string(j.Body)
			w.ran[j.Key.Raw()] = append(w.ran[j.Key.Raw()], text[:min(len(text), 10)])
			return nil
		})
	}
	w.background(w.p.Run)
	return w
}

func (w *world) background(run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(stop)
	return stop
}

func (w *world) exec(statement string, args ...any) {
	w.t.Helper()
	if _, err := w.db.Exec(w.t.Context(), statement, args...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) insert(j penstock.Job) {
	w.t.Helper()
	tx, err := w.db.Begin(w.t.Context())
	if err == nil {
		if err = outbox.Insert(w.t.Context(), tx, j); err == nil {
			err = tx.Commit(w.t.Context())
		}
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) rows(condition string) (n int) {
	w.t.Helper()
	row := w.db.QueryRow(w.t.Context(), "SELECT count(*) FROM penstock_outbox WHERE "+condition)
	if err := row.Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *world) hasRun(key string, want ...string) {
	w.t.Helper()
	got := func() []string {
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.Clone(w.ran[key])
	}
	waittest.Eventually(func() bool { return len(got()) >= len(want) })
	if !slices.Equal(got(), want) {
		w.t.Errorf("of %q ran %q, want %q", key, got(), want)
	}
}

func numbers(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint(i))
	}
	return all
}

func TestJobsOfCommittedTransactionsRunOnceInOrder(t *testing.T) {
	w := newWorld(t)
	w.exec("ALTER DATABASE postgres SET default_transaction_isolation = 'repeatable read'")
	w.db.Reset()
	var said waittest.Log
	for range 3 {
		w.background((&outbox.Relay{DB: w.db, Jobs: w.p,
			Logger: slog.New(slog.NewTextHandler(&said, nil))}).Run)
	}
	db, err := sql.Open("pgx", w.at)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	const jobs = 50
	keys := []string{"", "acme", "ümläut/x"}
	for i := range jobs {
		for _, key := range keys {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			j := penstock.Job{Policy: "mail", Key: key, Body: fmt.Append(nil, i),
				Header: http.Header{"Content-Type": {"text/plain"}}}
			if err := outbox.InsertSQL(t.Context(), tx, j); err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
		}
		tx, err := w.db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := outbox.Insert(t.Context(), tx, penstock.Job{Policy: "mail"}); err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		w.insert(penstock.Job{Policy: "mail", Key: "large",
			Body: []byte(strings.Repeat("x", admission.MaxBody))})
	}
	for _, key := range keys {
		w.hasRun(key, numbers(jobs)...)
	}
	w.hasRun("large", slices.Repeat([]string{"xxxxxxxxxx"}, 5)...)
	waittest.Until(t, "the outbox is empty", func() bool { return w.rows("true") == 0 })
	if said.String() != "" {
		t.Errorf("relays say %s", said.String())
	}
	err = outbox.Insert(t.Context(), w.db, penstock.Job{Policy: "mail",
		Body: make([]byte, admission.MaxBody+1)})
	if !errors.Is(err, admission.ErrTooLarge) {
		t.Errorf("a body that no queue takes: %v", err)
	}
}

// killed submits jobs, and kills the relay's connection before it can delete their rows.
type killed struct {
	*world
	mu   sync.Mutex
	left int
}

func (k *killed) Submit(ctx context.Context, j penstock.Job) (penstock.Ticket, error) {
	ticket, err := k.p.Submit(ctx, j)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.left--; k.left >= 0 {
		k.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> " +
			"pg_backend_pid() AND state = 'idle in transaction'")
	}
	return ticket, err
}

func TestARelayThatDiesAfterASubmissionMakesNoSecondJob(t *testing.T) {
	w := newWorld(t)
	for i := range 20 {
		w.insert(penstock.Job{Policy: "mail", Key: "a", Body: fmt.Append(nil, i)})
		w.insert(penstock.Job{Policy: "mail", Key: "b", Body: fmt.Append(nil, i)})
	}
	k := &killed{world: w, left: 3}
	w.background((&outbox.Relay{DB: w.db, Jobs: k}).Run)
	waittest.Until(t, "the outbox is empty", func() bool { return w.rows("true") == 0 })
	w.hasRun("a", numbers(20)...)
	w.hasRun("b", numbers(20)...)
	if k.left >= 0 {
		t.Error("no connection was killed")
	}
}

// late inserts a job when a relay has looked for keys.
type late struct {
	*world
	once sync.Once
}

func (l *late) TraceQueryStart(ctx context.Context, _ *pgx.Conn,
	of pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, l, of.SQL)
}

func (l *late) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if text, _ := ctx.Value(l).(string); strings.Contains(text, "RECURSIVE") {
		l.once.Do(func() { l.insert(penstock.Job{Policy: "mail", Body: []byte("0")}) })
	}
}

func TestARowThatIsInsertedWhileTheRelayLooksDoesNotWaitForThePoll(t *testing.T) {
	w := newWorld(t)
	config, err := pgxpool.ParseConfig(w.at)
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.Tracer = &late{world: w}
	db, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	stop := w.background((&outbox.Relay{DB: db, Jobs: w.p, Poll: time.Hour}).Run)
	w.hasRun("", "0")
	stop()
}

func TestAFullQueueHoldsItsKeyUpAndNoOther(t *testing.T) {
	w := newWorld(t)
	for i := range 12 {
		w.insert(penstock.Job{Policy: "slow", Key: "full", Body: fmt.Append(nil, i)})
	}
	w.insert(penstock.Job{Policy: "slow", Key: "other", Body: []byte("0")})
	stop := w.background((&outbox.Relay{DB: w.db, Jobs: w.p, Poll: 20 * time.Millisecond}).Run)
	w.hasRun("other", "0")
	if w.rows("key = 'full'") == 0 {
		t.Error("the queue was never full")
	}
	w.hasRun("full", numbers(12)...)
	waittest.Until(t, "the outbox is empty", func() bool { return w.rows("true") == 0 })
	stop()
}

func TestRowsWaitWhilePenstockIsAway(t *testing.T) {
	w := newWorld(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	listener.Close()
	client, err := penstock.NewHTTPClient("http://"+addr, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	w.insert(penstock.Job{Policy: "mail", Body: []byte("0")})
	for range 2 {
		w.insert(penstock.Job{Policy: "mail", Key: "repeated", Body: []byte("0"),
			Header: http.Header{"Idempotency-Key": {"one"}}})
	}
	var said waittest.Log
	w.background((&outbox.Relay{DB: w.db, Jobs: client,
		Logger: slog.New(slog.NewTextHandler(&said, nil))}).Run)
	waittest.Until(t, "submissions failed", func() bool {
		return w.rows("retry_at > inserted AND error IS NULL") == 2
	})
	if !strings.Contains(said.String(), "connection refused") {
		t.Errorf("the log says %q", said.String())
	}
	if listener, err = net.Listen("tcp", addr); err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: w.p.Handler()}
	defer server.Close()
	go server.Serve(listener)
	w.hasRun("", "0")
	waittest.Until(t, "the outbox is empty", func() bool { return w.rows("true") == 0 })
	w.hasRun("repeated", "0")
}

func TestProcessesThatStartAtOnceCreateTheSchema(t *testing.T) {
	db, err := pgxpool.New(t.Context(), pgtest.Start(t).At)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := db.Exec(t.Context(), outbox.Schema); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// none fails the test if a statement is sent.
type none struct{ t *testing.T }

func (n none) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	n.t.Error("sent to PostgreSQL")
	return pgconn.CommandTag{}, nil
}

func TestTextThatCannotBeStoredIsRefusedBeforeItFailsTheTransaction(t *testing.T) {
	for _, j := range []penstock.Job{{IdempotencyKey: "\xff"}, {Unique: "\xfe"}, {Key: "a\x00"},
		{Header: http.Header{"Content-Type": {"caf\xe9"}}}, {Key: "\xff"}} {
		j.Policy = "mail"
		if err := outbox.Insert(t.Context(), none{t}, j); err == nil {
			t.Errorf("%+v was taken", j)
		}
	}
}

func TestARowThatCannotBeSubmittedIsSetAside(t *testing.T) {
	w := newWorld(t)
	for i := range 3 {
		w.insert(penstock.Job{Policy: "mail", Body: fmt.Append(nil, i),
			Cost: []int64{0, 5000, 0}[i]})
	}
	w.insert(penstock.Job{Policy: "mial", Key: "misspelt", Body: []byte("0")})
	w.insert(penstock.Job{Policy: "mail", Key: "header", Body: []byte("0"),
		Header: http.Header{"X-Large": {strings.Repeat("x", 100<<10)}}})
	w.insert(penstock.Job{Policy: "mail", Key: "header", Body: []byte("1"), Unique: "a\nb"})
	w.insert(penstock.Job{Policy: "mail", Key: "header", Body: []byte("2")})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.background(lifecycle.HTTP(listener, w.p.Handler(), lifecycle.HTTPOptions{Grace: time.Second}))
	client, err := penstock.NewHTTPClient("http://"+listener.Addr().String(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	w.background((&outbox.Relay{DB: w.db, Jobs: client}).Run)
	w.hasRun("", "0", "2")
	w.hasRun("header", "2")
	waittest.Until(t, "the others are set aside", func() bool {
		return w.rows("error LIKE '%unknown policy%'") == 1 &&
			w.rows("error LIKE '%can never pass%'") == 1 && w.rows("error IS NOT NULL") == 4 &&
			w.rows("true") == 4
	})
	w.exec("UPDATE penstock_outbox SET error = NULL, policy = 'mail' WHERE policy = 'mial'")
	w.hasRun("misspelt", "0")
}

// A proxy answers without a problem document.
func TestARowThatAProxyRefusesAsTooLargeIsSetAside(t *testing.T) {
	w := newWorld(t)
	proxy := httptest.NewServer(http.HandlerFunc(func(a http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(path.Base(r.URL.Path))
		http.Error(a, "no", status)
	}))
	defer proxy.Close()
	for _, key := range []string{"413", "431", "502"} {
		w.insert(penstock.Job{Policy: "mail", Key: key})
	}
	client, err := penstock.NewHTTPClient(proxy.URL, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	w.background((&outbox.Relay{DB: w.db, Jobs: client}).Run)
	waittest.Until(t, "the large ones are set aside, and the other waits", func() bool {
		return w.rows("error IS NOT NULL AND key <> '502'") == 2 &&
			w.rows("error IS NULL AND retry_at > inserted") == 1
	})
}

// away is no Penstock.
type away struct{ calls atomic.Int64 }

func (a *away) Submit(context.Context, penstock.Job) (penstock.Ticket, error) {
	a.calls.Add(1)
	return penstock.Ticket{}, penstock.ErrUnavailable
}

func TestARelayLogsAFailureThatGoesOnOnce(t *testing.T) {
	w := newWorld(t)
	for i := range 3 {
		w.insert(penstock.Job{Policy: "mail", Key: fmt.Sprint(i)})
	}
	var out bytes.Buffer
	a := &away{}
	stop := w.background((&outbox.Relay{DB: w.db, Jobs: a, Poll: 10 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(&out, nil))}).Run)
	waittest.Until(t, "the rows are tried again", func() bool { return a.calls.Load() > 3 })
	stop()
	if n := strings.Count(out.String(), "not submitted"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, out.String())
	}
}
