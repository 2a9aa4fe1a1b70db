package schedules

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/base/cron"
	"github.com/penstock-mq/penstock/internal/base/nearest"
	"github.com/penstock-mq/penstock/internal/base/zones"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// Entry is a schedule in a configuration file.
type Entry struct {
	Policy string `json:"policy"`         // of the same file
	Key    string `json:"key,omitempty"`  // default: the bucket of jobs without a key
	Name   string `json:"name,omitempty"` // several of a key need names; default "default"
	// as in Penstock-Schedule and Penstock-Schedule-Zone
	When string `json:"when"`
	Zone string `json:"zone,omitempty"`
	// default: unchanged
	Paused *bool  `json:"paused,omitempty"`
	Body   string `json:"body,omitempty"` // body of its jobs
	// short for two of Headers
	Priority int               `json:"priority,omitempty" zero:"meant"`
	Cost     int64             `json:"cost,omitempty"`
	Headers  map[string]string `json:"headers,omitempty"`
}

var headers = map[string]string{"name": jet.HeaderScheduleName, "when": jet.HeaderSchedule,
	"zone": jet.HeaderScheduleZone, "priority": job.HeaderPriority, "cost": job.HeaderCost}

var errUnsound = errors.New("the policy itself is wrong")

// among finds a policy of a file.
func among(policies []policy.Policy) func(name string) (policy.Policy, error) {
	return func(name string) (policy.Policy, error) {
		var names []string
		for _, p := range policies {
			if p.Name == name && len(p.Validate()) > 0 {
				return p, errUnsound
			} else if p.Name == name {
				return p.WithDefaults(), nil
			}
			names = append(names, p.Name)
		}
		return policy.Policy{}, &admission.RequestError{Field: "policy", Reason: fmt.Sprintf(
			"%q is not a policy of this file%s", name, nearest.Hint(name, names))}
	}
}

// Check returns problems, with fields such as "[2].when". read reports whether an entry, such as
// "schedules[2]", could be read; those that could not are passed over.
func Check(entries []Entry, policies []policy.Policy,
	read func(place string) bool) (problems []policy.Problem) {

	find, first := among(policies), map[string]int{}
	for i, e := range entries {
		if !read(fmt.Sprintf("schedules[%d]", i)) {
			continue
		}
		made, err := e.schedule("", find)
		before, twice := first[made.ID()]
		var wrong policy.Problem
		switch {
		case errors.Is(err, errUnsound):
			continue
		case err != nil:
			wrong = e.problem(err)
		case twice:
			wrong = policy.Problem{Field: "name", Reason: fmt.Sprintf("%q is already the name of "+
				"schedules[%d], for the same policy and key", made.Name, before)}
		default:
			first[made.ID()] = i
			continue
		}
		wrong.Field = fmt.Sprintf("[%d].%s", i, wrong.Field)
		problems = append(problems, wrong)
	}
	if len(entries) > jet.MaxSchedules {
		problems = append(problems, policy.Problem{Reason: fmt.Sprintf(
			"must have at most %d entries, not %d", jet.MaxSchedules, len(entries))})
	}
	return problems
}

func (e Entry) problem(err error) policy.Problem {
	bad, ok := errors.AsType[*admission.RequestError](err)
	switch {
	case errors.Is(err, admission.ErrTooLarge):
		return policy.Problem{Field: "body", Reason: err.Error()}
	case !ok:
		return policy.Problem{Field: "policy", Reason: err.Error()}
	}
	for name := range e.Headers {
		if strings.EqualFold(name, bad.Field) {
			return policy.Problem{Field: "headers." + name, Reason: bad.Reason}
		}
	}
	for name, header := range headers {
		if header == bad.Field {
			return policy.Problem{Field: name, Reason: bad.Reason}
		}
	}
	return policy.Problem{Field: bad.Field, Reason: bad.Reason}
}

func (e Entry) schedule(set string,
	find func(string) (policy.Policy, error)) (s jet.Schedule, err error) {
	r := Request{Name: e.Name, When: e.When, Zone: e.Zone}
	r.Policy, r.Body, r.Header = e.Policy, []byte(e.Body), map[string][]string{}
	if r.Key, err = queue.EncodeKey(e.Key); err != nil {
		return s, admit.InvalidKey(err)
	}
	for name, value := range e.Headers {
		r.Header[name] = []string{value}
	}
	if e.Priority != 0 {
		r.Header[job.HeaderPriority] = append(r.Header[job.HeaderPriority],
			strconv.Itoa(e.Priority))
	}
	if e.Cost != 0 {
		r.Header[job.HeaderCost] = append(r.Header[job.HeaderCost],
			strconv.FormatInt(e.Cost, 10))
	}
	s, err = r.schedule(func(r admit.SubmitRequest) (map[string][]string, error) {
		return admit.Sound(find, r)
	})
	s.Set, s.Paused = set, e.Paused != nil && *e.Paused
	return s, err
}

func (e Entry) id() string {
	e.Name = cmp.Or(e.Name, DefaultName)
	text, _ := json.Marshal(e)
	return string(text)
}

const wanted = "want a cron pattern such as 30 6 * * 1-5 (optionally with seconds in front), " +
	"@every 90s (1s to 36500d), @hourly, @daily, @weekly, @monthly, @yearly, or " +
	"@at 2030-01-31T12:00:00Z (until 2262)"

const (
	every   = "@every "
	at      = "@at "
	longest = 36500 * 24 * time.Hour
)

var (
	errZone  = errors.New("applies only to cron patterns")
	errRange = errors.New("out of range")
)

// pattern is in the stored form: with seconds, and durations without days.
func pattern(when string) string {
	if text, ok := strings.CutPrefix(when, every); ok {
		d, err := algorithms.ParseDuration(text)
		if _, unknown := time.ParseDuration(text); unknown != nil && err == nil {
			return every + d.String()
		}
	}
	if !strings.HasPrefix(when, "@") && len(strings.Fields(when)) == 5 {
		return "0 " + when
	}
	return when
}

// asWritten is a pattern as users write it: with days.
func asWritten(pattern string) string {
	if text, ok := strings.CutPrefix(pattern, every); ok {
		if d, err := time.ParseDuration(text); err == nil && text == d.String() {
			return every + algorithms.FormatDuration(d)
		}
	}
	return pattern
}

// checkTimes returns the header that it refuses.
func checkTimes(when, zone string) (header string, err error) {
	if err := checkWhen(when); err != nil {
		return jet.HeaderSchedule, err
	}
	clocks := time.UTC
	if zone != "" {
		if timed(when) {
			return jet.HeaderScheduleZone, errZone
		}
		if clocks, err = zones.Load(zone); err != nil {
			return jet.HeaderScheduleZone, err
		}
	}
	if timed(when) {
		return "", nil
	}
	times, err := cron.Parse(when)
	if err == nil && times.Next(time.Now(), clocks).IsZero() {
		err = fmt.Errorf("%q: no such time comes", when)
	}
	return jet.HeaderSchedule, err
}

func timed(when string) bool {
	return strings.HasPrefix(when, at) || strings.HasPrefix(when, every)
}

// Instants must be int64 nanoseconds, as the server counts them: it would make jobs of later ones
// at once, and repeatedly.
func checkWhen(when string) error {
	var err error
	switch {
	case strings.HasPrefix(when, at):
		var t time.Time
		t, err = time.Parse(time.RFC3339, strings.TrimPrefix(when, at))
		if err == nil && !time.Unix(0, t.UnixNano()).Equal(t) {
			err = errRange
		}
	case strings.HasPrefix(when, every):
		var d time.Duration
		d, err = algorithms.ParseDuration(strings.TrimPrefix(when, every))
		if err == nil && (d < time.Second || d > longest) {
			err = errRange
		}
	case strings.HasPrefix(when, "TZ="), strings.HasPrefix(when, "CRON_TZ="):
		prefix, _, _ := strings.Cut(when, "=")
		return fmt.Errorf("%q: no prefix %s= here: a zone is given in %s (in a file: zone)", when,
			prefix, jet.HeaderScheduleZone)
	default:
		if _, err = cron.Parse(when); err != nil && !errors.Is(err, cron.ErrFields) {
			return fmt.Errorf("%q: %w", when, err)
		}
	}
	if err != nil {
		return fmt.Errorf("%q: %s", when, wanted)
	}
	return nil
}
