package httpapi

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/admission/manage"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/queue"
)

func TestSomeDeadLettersAreReplayedOrDiscarded(t *testing.T) {
	i := install(t, manage.Options{})
	i.want(201, nil, "PUT", "/v1/policies/stripe",
		`{"algorithm":"leaking_bucket","outflow":"1/s","capacity":2}`)
	for n, letter := range []struct{ key, reason string }{
		{"a", "attempts"}, {"a", "attempts"}, {"b", "attempts"}, {"a", "permanent"},
		{"b", "deadline"}, {"a", "attempts"},
	} {
		i.bury(jet.DeadLetter{Policy: "stripe", Key: queue.Key(letter.key), Seq: uint64(n + 1),
			Reason: letter.reason, Body: []byte("{}")})
	}
	left := func(ids ...int) {
		t.Helper()
		want := ""
		for _, id := range ids {
			want += fmt.Sprintf(`"id":%d `, id)
		}
		_, _, answer := i.send("GET", "/v1/dead/stripe", "")
		got := strings.Join(regexp.MustCompile(`"id":\d+`).FindAllString(answer, -1), " ") + " "
		if got != want {
			t.Errorf("%s are left, want %s", got, want)
		}
	}
	hourAgo := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	for _, nothing := range []string{"key=c", "reason=crashed", "before=1h", "before=" + hourAgo,
		"reason=deadline&key=a"} {
		i.want(200, []string{`"replayed":0,"full":0,"unfit":0,"complete":true`}, "POST",
			"/v1/dead/stripe/replay?"+nothing, "")
		i.want(200, []string{`{"discarded":0}`}, "DELETE", "/v1/dead/stripe?"+nothing, "")
	}
	left(1, 2, 3, 4, 5, 6)
	i.want(200, []string{`{"replayed":3,"full":1,"unfit":0,"complete":true}`}, "POST",
		"/v1/dead/stripe/replay?reason=attempts&since="+hourAgo, "")
	left(4, 5, 6)
	i.want(200, []string{`{"discarded":1}`}, "DELETE",
		"/v1/dead/stripe?reason=attempts&key=a&since=1h", "")
	left(4, 5)
	i.want(200, []string{`{"discarded":1}`}, "DELETE", "/v1/dead/stripe?key=a&through=4", "")
	left(5)
	for _, bad := range []string{"reason=", "reason=late", "since=soon", "before=-1h", "key=%FF",
		"since=1h&since=2h", "after=1"} {
		i.want(400, nil, "POST", "/v1/dead/stripe/replay?"+bad, "")
		i.want(400, nil, "DELETE", "/v1/dead/stripe?"+bad, "")
	}
	left(5)
}
