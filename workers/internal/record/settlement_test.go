package record

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
)

func TestSettlementsRoundTrip(t *testing.T) {
	now := time.Now()
	for _, o := range []Outcome{
		{Kind: OutcomeDone}, {Answer: AnswerNone, Kind: OutcomeFailed, Error: "no"},
		{Answer: AnswerNone, Kind: OutcomeFailed, Unavailable: true, Error: "down"},
		{Kind: OutcomePermanent, Error: "never"},
		{Kind: OutcomeThrottled, RetryAfter: 1500 * time.Millisecond, Error: "slow"},
		{Kind: OutcomeThrottled},
		{Kind: OutcomeThrottled, Doubtful: true, Error: "slow"},
		{Answer: AnswerNone, Kind: OutcomeFailed, Again: 10 * time.Second, Error: "locked"},
		{Answer: AnswerNone, Kind: OutcomeUncounted},
		{Answer: AnswerNone, Kind: OutcomeUncounted, Unavailable: true, Error: "no such file"},
		{Answer: AnswerNone, Kind: OutcomeUncounted, Again: 10*time.Minute + time.Millisecond},
		{Kind: OutcomeDone, RetryAfter: 2 * time.Second},
		{Answer: AnswerNone, Kind: OutcomeFailed, RetryAfter: time.Minute, Error: "no"},
		{Kind: OutcomeDone, Used: map[string]int64{"tokens": 830, "calls": 0}},
		{Kind: OutcomeFailed, Error: "answered"},
		{Kind: OutcomeThrottled, Answer: AnswerNone, Error: "busy"},
		{Kind: OutcomeFailed, Unavailable: true, Answer: AnswerUnsent, Error: "refused"},
	} {
		got, err := Settled(o.Settlement(), now)
		if err != nil || !reflect.DeepEqual(got, o) {
			t.Errorf("outcome %+v, want %+v: %v", got, o, err)
		}
	}
	if s := (Outcome{Kind: OutcomeFailed, Error: "no,\nand\tnever", RetryAfter: 1}).Settlement(); s.
		Error != "no, and never" || s.RetryAfterMS != 1 {
		t.Errorf("settlement %+v", s)
	}
	if o, err := Settled(job.Settlement{Status: job.SettledReturned,
		Again: now.Add(time.Hour).Format(time.RFC3339)}, now); err != nil ||
		o.Again <= 59*time.Minute || o.Again > time.Hour {
		t.Errorf("a time becomes %v: %v", o.Again, err)
	}
}

// Claimants elsewhere are not believed to keep within bounds.
func TestSettlementsAreBounded(t *testing.T) {
	used := map[string]int64{"": 1, "Tokens": math.MaxInt64, "less": -1,
		strings.Repeat("x", 33): 1}
	o, err := Settled(job.Settlement{Status: job.SettledUnreached, Error: strings.Repeat("é", 4000),
		RetryAfterMS: math.MaxInt64, Used: used}, time.Now())
	if err != nil || o.Kind != OutcomeFailed || !o.Unavailable || o.Answer != AnswerUnsent ||
		o.RetryAfter != mostPause ||
		len(o.Error) > MostError+len("…") ||
		!reflect.DeepEqual(o.Used, map[string]int64{"tokens": policy.MaxLimit}) {
		t.Errorf("%+v, %v", o, err)
	}
	for range 2 * policy.MaxLimits {
		used[strings.Repeat("u", len(used))] = 1
	}
	o, err = Settled(job.Settlement{Status: job.SettledDone, RetryAfterMS: -1, Used: used,
		Again: time.Now().Add(-time.Hour).Format(time.RFC3339)}, time.Now())
	if err != nil || o.RetryAfter != 0 || o.Again != 0 || len(o.Used) != policy.MaxLimits {
		t.Errorf("%+v, %v", o, err)
	}
	for _, bad := range []job.Settlement{{}, {Status: "maybe"},
		{Status: job.SettledFailed, Again: "soon"}} {
		if o, err := Settled(bad, time.Now()); err == nil {
			t.Errorf("%+v is understood as %+v", bad, o)
		}
	}
}

func TestTextIsCutBetweenCharacters(t *testing.T) {
	for most, want := range map[int]string{3: "é…", 4: "éé…", 6: "ééé"} {
		if got := Clip("ééé", most); got != want {
			t.Errorf("cut at %d: %q, want %q", most, got, want)
		}
	}
}
