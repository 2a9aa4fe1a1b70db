package jsapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
)

// A replica that lags, or has a message that it does not give, ends no list.
func TestTheLeaderHasWhatAReplicaLacks(t *testing.T) {
	for _, c := range []struct {
		replica []uint64
		leader  uint64 // has all up to this one
		want    []uint64
	}{
		{replica: []uint64{1, 2, 3}, leader: 3, want: []uint64{1, 2, 3}},
		{replica: []uint64{1}, leader: 3, want: []uint64{1, 2, 3}},
		{replica: []uint64{1, 3}, leader: 3, want: []uint64{1, 3}}, // 2 is deleted
		{leader: 2, want: []uint64{1, 2}},
		{},
	} {
		js, err := New(natstest.New(t), "elsewhere") // where no server answers
		if err != nil {
			t.Fatal(err)
		}
		answer(t, js, "$JS.API.DIRECT.GET.S", func(from uint64) []*nats.Msg {
			for _, seq := range c.replica {
				if seq >= from {
					return []*nats.Msg{{Header: nats.Header{"Nats-Stream": {"S"},
						"Nats-Subject": {"s"}, "Nats-Sequence": {fmt.Sprint(seq)},
						"Nats-Time-Stamp": {time.Now().Format(time.RFC3339Nano)}}},
						{Header: nats.Header{"Status": {"204"}}}}
				}
			}
			return []*nats.Msg{{Header: nats.Header{"Status": {"404"}}}}
		})
		answer(t, js, "$JS.API.STREAM.MSG.GET.S", func(from uint64) []*nats.Msg {
			body := fmt.Sprintf(`{"message":{"subject":"s","seq":%d}}`, from)
			if from > c.leader {
				body = fmt.Sprintf(`{"error":{"code":404,"err_code":%d}}`,
					jetstream.JSErrCodeMessageNotFound)
			}
			return []*nats.Msg{{Data: []byte(body)}}
		})
		var got []uint64
		for m, err := range js.Messages(natstest.Context(t), "S", "s", 1, 10) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, m.Seq)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: got %d", c, got)
		}
	}
}

func answer(t *testing.T, js *Conn, subject string, with func(from uint64) []*nats.Msg) {
	t.Helper()
	_, err := js.NATS.Subscribe(js.API(subject), func(m *nats.Msg) {
		var request struct {
			Seq uint64 `json:"seq"`
		}
		if err := json.Unmarshal(m.Data, &request); err != nil {
			t.Error(err)
		}
		for _, a := range with(request.Seq) {
			if err := m.RespondMsg(a); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAListOfAMissingStreamSaysSo(t *testing.T) {
	for _, err := range conn(t, natstest.New(t)).Messages(natstest.Context(t), "S", "", 1, 10) {
		if !errors.Is(err, ErrNoStream) {
			t.Errorf("got %v", err)
		}
	}
}
