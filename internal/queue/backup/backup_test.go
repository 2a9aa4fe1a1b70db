package backup_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/kit/brokertest"
	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/queue/backup"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
)

// TestARestoreWaitsForTheLeaderOfANewCluster answers as servers without a leader do, and then as a
// leader of streams.
func TestARestoreWaitsForTheLeaderOfANewCluster(t *testing.T) {
	file, _ := write(t, installed(t, 10))
	s, err := server.NewServer(&server.Options{DontListen: true, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(s.Shutdown)
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	answers := []string{`{"error":{"code":503,"err_code":10008}}`,
		`{"total":1,"streams":["PENSTOCK_mail"]}`}
	if _, err := nc.Subscribe("$JS.API.STREAM.NAMES", func(m *nats.Msg) {
		_ = m.Respond([]byte(answers[0]))
		answers = answers[len(answers)-1:]
	}); err != nil {
		t.Fatal(err)
	}
	b, err := jet.NewBroker(nc, jet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = backup.Restore(natstest.Context(t), b, bytes.NewReader(file))
	if err == nil || !strings.Contains(err.Error(), "an installation is there already") {
		t.Errorf("got %v, want that it sees the leader's streams", err)
	}
}

const jobs = 300

func installed(t *testing.T, bytesEach int) *jet.Broker {
	t.Helper()
	b := brokertest.Open(t, natstest.New(t), policy.Policy{Name: "mail",
		Rule: policy.Rule{Algorithm: policy.LeakingBucket, Capacity: 10_000,
			Outflow: algorithms.Rate{Count: 1, Per: time.Hour}}})
	p := b.NewProducer(jet.ProducerOptions{})
	for i := range jobs {
		key, err := queue.EncodeKey(fmt.Sprint("tenant ", i%7))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Publish(t.Context(), jet.Submission{Policy: "mail", Key: key,
			Body: bytes.Repeat([]byte{byte(i)}, bytesEach)}); err != nil {
			t.Fatal(err)
		}
	}
	key, err := queue.EncodeKey("tenant 1")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []jet.Schedule{
		{Name: "leap", When: "0 30 2 29 2 *", Zone: "Europe/Berlin", Body: []byte("report")},
		{Name: "paused", When: "@hourly", Paused: true},
	} {
		s.Policy, s.Key = "mail", key
		if err := b.Schedules().Put(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func write(t *testing.T, b *jet.Broker) ([]byte, backup.Contents) {
	t.Helper()
	var out bytes.Buffer
	c, err := backup.Write(t.Context(), b, &out)
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), c
}

func empty(t *testing.T, prefix string, o embedded.Options) *jet.Broker {
	t.Helper()
	b, err := jet.NewBroker(natstest.Connect(t, natstest.Start(t, o)),
		jet.Options{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func streams(t *testing.T, b *jet.Broker) map[string]jetstream.StreamInfo {
	t.Helper()
	js, err := jetstream.New(b.Conn())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]jetstream.StreamInfo{}
	list := js.ListStreams(t.Context())
	for info := range list.Info() {
		found[info.Config.Name] = *info
	}
	if list.Err() != nil {
		t.Fatal(list.Err())
	}
	return found
}

func TestARestoreIsComplete(t *testing.T) {
	before := installed(t, 3000)
	file, c := write(t, before)
	names := ""
	for _, s := range c.Streams {
		names += s.Name + " "
	}
	// Records of jobs come before the jobs, and policies last.
	const want = "KV_PENSTOCK_ATTEMPTS KV_PENSTOCK_ENDED KV_PENSTOCK_PARTITIONS " +
		"PENSTOCK_SCHEDULES PENSTOCK_mail KV_PENSTOCK_POLICIES "
	const without = "[KV_PENSTOCK_ADMITTERS KV_PENSTOCK_DONE KV_PENSTOCK_DRAINERS " +
		"KV_PENSTOCK_LOCKS]"
	if names != want || fmt.Sprint(c.LeftOut) != without {
		t.Errorf("has %s and leaves out %s", names, c.LeftOut)
	}
	if n := len(streams(t, before)); n != len(c.Streams)+len(c.LeftOut) {
		t.Errorf("it speaks of %d streams of %d", len(c.Streams)+len(c.LeftOut), n)
	}

	after := empty(t, "", embedded.Options{})
	restored, err := backup.Restore(t.Context(), after, bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	if len(restored.Streams) != len(c.Streams) {
		t.Errorf("restored %+v", restored)
	}
	old, now := streams(t, before), streams(t, after)
	for _, s := range c.Streams {
		o, n := old[s.Name], now[s.Name]
		if n.State.Msgs != o.State.Msgs || n.State.LastSeq != o.State.LastSeq ||
			n.Config.Metadata["penstock.restored"] == "" ||
			n.Config.Metadata["penstock.created"] != fmt.Sprint(o.Created.UnixNano()) {
			t.Errorf("%s: %+v, was %+v", s.Name, n, o)
		}
	}
	if len(now) != len(c.Streams) || now["PENSTOCK_mail"].State.Msgs != jobs {
		t.Errorf("%d streams, %+v", len(now), now["PENSTOCK_mail"])
	}

	if _, err := backup.Restore(t.Context(), after, bytes.NewReader(file)); err == nil ||
		!strings.Contains(err.Error(), "an installation is there already") ||
		!strings.Contains(err.Error(), "PENSTOCK_mail") {
		t.Errorf("over what is there: %v", err)
	}
	if n := len(streams(t, after)); n != len(c.Streams) {
		t.Errorf("it was touched: %d streams", n)
	}
}

func TestATruncatedBackupIsRefused(t *testing.T) {
	file, _ := write(t, installed(t, 3000))
	b := empty(t, "", embedded.Options{})
	expect := func(what string, text []byte) {
		t.Helper()
		if _, err := backup.Restore(t.Context(), b, bytes.NewReader(text)); !errors.Is(err,
			backup.ErrCut) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// 1,024 bytes of zeros end a tar; complete.json is before them.
	for _, length := range []int{0, 100, 512, 2000, len(file) / 2, len(file) - 1024 - 600} {
		expect(fmt.Sprint("cut at ", length), file[:length])
	}
	other := bytes.Clone(file)
	other[len(other)/2] ^= 1
	expect("another bit", other)
	if n := len(streams(t, b)); n != 0 {
		t.Errorf("%d streams", n)
	}
	if _, err := backup.Restore(t.Context(), empty(t, "other", embedded.Options{}),
		bytes.NewReader(file)); err == nil || !strings.Contains(err.Error(), "nats.prefix") {
		t.Errorf("another prefix: %v", err)
	}
	if _, err := backup.Write(t.Context(), b, &bytes.Buffer{}); err == nil ||
		!strings.Contains(err.Error(), "no installation with the prefix penstock") {
		t.Errorf("a backup of nothing: %v", err)
	}
}

func TestARestoreThatFailsLeavesNothing(t *testing.T) {
	file, _ := write(t, installed(t, 30_000))
	small := empty(t, "", embedded.Options{MaxStore: 1 << 19})
	ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience)
	defer cancel()
	if _, err := backup.Restore(ctx, small, bytes.NewReader(file)); err == nil {
		t.Fatal("it found room where there is none")
	} else {
		t.Log(err)
	}
	if found := streams(t, small); len(found) != 0 {
		t.Errorf("%d streams", len(found))
	}
}

func TestRestoredSchedulesTick(t *testing.T) {
	before := installed(t, 10)
	ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience)
	defer cancel()
	soon := jet.Schedule{Policy: "mail", Key: queue.NoKey, Name: "every", When: "@every 1s"}
	if err := before.Schedules().Put(ctx, soon); err != nil {
		t.Fatal(err)
	}
	once := jet.Schedule{Policy: "mail", Key: queue.NoKey, Name: "once",
		When: "@at " + time.Now().Add(time.Second).UTC().Format(time.RFC3339)}
	if err := before.Schedules().Put(ctx, once); err != nil {
		t.Fatal(err)
	}
	file, _ := write(t, before)
	after := empty(t, "", embedded.Options{})
	if _, err := backup.Restore(ctx, after, bytes.NewReader(file)); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	all, err := after.Schedules().List(ctx, "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		names[s.Name] = s.Paused
	}
	if paused, ok := names["paused"]; !ok || !paused || len(names) < 3 {
		t.Errorf("restored %+v", all)
	}
	ticked := map[string]int{}
	err = after.Schedules().Ticks(ctx, func(tick jet.Tick) (time.Duration, bool) {
		if ticked[tick.Name]++; ticked["every"] > 2 && ticked["once"] > 0 {
			cancel()
		}
		return 0, true
	})
	if err != nil || ticked["every"] < 3 || ticked["once"] != 1 {
		t.Errorf("ticks %v: %v", ticked, err)
	}
}
