package policy_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
)

func TestValidate(t *testing.T) {
	type P = *policy.Policy
	perSecond := algorithms.Rate{Count: 1, Per: time.Second}
	minute := policy.Duration(time.Minute)
	leaking := func(change func(P)) policy.Policy {
		p := full()
		change(&p)
		return p
	}
	targeting := func(url string) policy.Policy {
		return leaking(func(p P) { p.Target = &policy.Target{HTTP: &policy.HTTPTarget{URL: url}} })
	}
	door := func(change func(P)) policy.Policy {
		p := policy.Policy{Name: "door",
			Rule: policy.Rule{Algorithm: policy.SlidingCounter, Limit: 10, Window: minute}}
		change(&p)
		return p
	}
	requesting := func(subject string) policy.Policy {
		return leaking(func(p P) {
			p.Target = &policy.Target{NATS: &policy.NATSTarget{Subject: subject}}
		})
	}
	const url = "target.http.url: "
	const subject = "target.nats.subject: "
	for name, test := range map[string]struct {
		policy policy.Policy
		want   []string
	}{
		"full": {full(), nil},
		"empty": {policy.Policy{}, []string{
			"name: is required", "algorithm: is required: want token_bucket, leaking_bucket, ",
		}},
		"name too long": {leaking(func(p P) { p.Name = strings.Repeat("a", 33) }),
			[]string{`name: "aaaaaaaaa`}},
		"name with a newline": {leaking(func(p P) { p.Name = "a\n" }), []string{
			`name: "a\n": want 1 to 32`,
		}},
		"the name of a stream of ours": {leaking(func(p P) { p.Name = "audit" }),
			[]string{`name: "audit" is reserved`}},
		"longest name": {leaking(func(p P) {
			p.Name = strings.Repeat("-", 32)
		}), nil},
		"a quiet night": {leaking(func(p P) {
			p.Quiet = []policy.Quiet{{From: "22:00", To: "07:00", Zone: "Europe/Berlin"}}
		}), nil},
		"quiet time that is no time": {leaking(func(p P) {
			p.Quiet = []policy.Quiet{{From: "10 pm", To: "07:00"}}
		}), []string{`quiet[0]: "10 pm": want a time of day such as 22:00`}},
		"quiet time at an hour that no clock shows": {leaking(func(p P) {
			p.Quiet = []policy.Quiet{{From: "12:00", To: "13:00"}, {From: "22:00", To: "24:00"}}
		}), []string{`quiet[1]: "24:00": want a time of day such as 22:00`}},
		"quiet time in no zone": {leaking(func(p P) {
			p.Quiet = []policy.Quiet{{From: "22:00", To: "07:00", Zone: "Berlin"}}
		}), []string{`quiet[0]: "Berlin" is not a time zone; did you mean Europe/Berlin?`}},
		"quiet time without an end": {leaking(func(p P) {
			p.Quiet = []policy.Quiet{{From: "7:00", To: "07:00"}, {From: "07:00", To: "07:00"}}
		}), []string{`quiet[0]: "7:00": want a time of day`}},
		"quiet time of no length": {leaking(func(p P) {
			p.Quiet = []policy.Quiet{{From: "07:00", To: "07:00"}}
		}), []string{`quiet[0]: from and to are both 07:00: pause the policy instead`}},
		"quiet all day": {leaking(func(p P) {
			p.Quiet = []policy.Quiet{{From: "07:00", To: "06:00"}, {From: "20:00", To: "21:00"}}
		}), []string{"quiet: the spans add up to 1d a day"}},
		"nine quiet times": {leaking(func(p P) {
			p.Quiet = make([]policy.Quiet, 9)
			for i := range p.Quiet {
				p.Quiet[i] = policy.Quiet{From: "07:00", To: "08:00"}
			}
		}), []string{"quiet: at most 8 spans, not 9"}},
		"a quiet door": {door(func(p P) {
			p.Quiet = []policy.Quiet{{From: "07:00", To: "08:00"}}
		}), []string{"quiet: "}},
		"unknown algorithm": {leaking(func(p P) { p.Algorithm = "leaky" }), []string{
			`algorithm: "leaky": want token`,
		}},
		"a misspelt algorithm": {leaking(func(p P) { p.Algorithm = "leaky_bucket" }), []string{
			`algorithm: "leaky_bucket": want token_bucket, leaking_bucket, fixed_window, ` +
				`sliding_log or sliding_counter; did you mean leaking_bucket?`,
		}},
		"leaking demands": {policy.Policy{Name: "a",
			Rule: policy.Rule{Algorithm: policy.LeakingBucket}}, []string{
			"outflow: is required", "capacity: is required",
		}},
		"token demands": {policy.Policy{Name: "a",
			Rule: policy.Rule{Algorithm: policy.TokenBucket}}, []string{
			"capacity: is required", "refill: is required",
		}},
		"fixed demands": {policy.Policy{Name: "a",
			Rule: policy.Rule{Algorithm: policy.FixedWindow}}, []string{
			"limit: is required", "window: is required",
		}},
		"log demands": {policy.Policy{Name: "a",
			Rule: policy.Rule{Algorithm: policy.SlidingLog}}, []string{
			"limit: is required", "window: is required",
		}},
		"counter demands": {policy.Policy{Name: "a",
			Rule: policy.Rule{Algorithm: policy.SlidingCounter}}, []string{
			"limit: is required", "window: is required",
		}},
		"fields of others": {leaking(func(p P) {
			p.Refill, p.Limit, p.Window, p.Count = perSecond, 1, minute, policy.CountAll
		}), []string{
			"refill: applies only to token_bucket, not to leaking_bucket",
			"limit: applies only to fixed_window, sliding_log or sliding_counter", "window: " +
				"applies only to",
			"count: applies only to sliding_log",
		}},
		"a queue's burst": {door(func(p P) { p.Burst, p.Outflow = 1, perSecond }), []string{
			"outflow: applies only to leaking_bucket", "burst: applies only to leaking_bucket",
		}},
		"negative numbers": {leaking(func(p P) {
			p.Capacity, p.Workers, p.Concurrency, p.Partitions = -1, -2, -3, -4
		}), []string{
			"capacity: must be 1 to 10000000, not -1",
			"concurrency: must be 1 to 1000000, not -3",
			"workers: must be 1 to 10000, not -2", "partitions: must be 1 to 256, not -4",
		}},
		"huge numbers": {leaking(func(p P) {
			p.Capacity, p.Burst, p.Workers, p.Partitions = math.MaxInt64, math.MaxInt64,
				math.MaxInt, 257
		}), []string{
			"capacity: must be 1 to 10000000", "burst: must be 1 to 1000000",
			"workers: must be 1 to 10000",
			"partitions: must be 1 to 256",
		}},
		"most of everything": {leaking(func(p P) {
			p.Capacity, p.Burst, p.Workers, p.Partitions, p.Concurrency = 1e7, 1e6, 10_000, 256, 1e6
			p.MaxJobs = 1e7
		}), nil},
		"a meter's capacity": {policy.Policy{Name: "meter", Rule: policy.Rule{
			Algorithm: policy.LeakingBucket, Outflow: perSecond, Capacity: 1e6 + 1},
			Queue: &policy.Queue{Off: true},
		}, []string{"capacity: must be 1 to 1000000, not 1000001"}},
		"jobs, negative": {leaking(func(p P) { p.MaxJobs = -1 }), []string{
			"max_jobs: must be 1 to 10000000, not -1",
		}},
		"jobs, too many": {leaking(func(p P) { p.MaxJobs = 1e7 + 1 }), []string{
			"max_jobs: must be 1 to 10000000, not 10000001",
		}},
		"fewer jobs than one key may have": {leaking(func(p P) {
			p.Capacity, p.MaxJobs = 10, 9
		}), []string{"max_jobs: must be at least the capacity of one key (10), not 9"}},
		"jobs at a door": {door(func(p P) { p.MaxJobs = 5 }), []string{
			"max_jobs: applies only to policies with a queue",
		}},
		"jobs behind a door": {door(func(p P) {
			p.Queue, p.MaxJobs = &policy.Queue{Capacity: 5}, 4
		}), []string{"max_jobs: must be at least the capacity of one key (5), not 4"}},
		"burst above capacity": {leaking(func(p P) { p.Capacity, p.Burst = 5, 6 }), []string{
			"burst: must be at most the capacity (5), not 6",
		}},
		"rate from Go": {leaking(func(p P) {
			p.Outflow = algorithms.Rate{Count: -5, Per: time.Second}
		}), []string{
			"outflow: -5/1s: the rate must be positive",
		}},
		"slow and deep": {leaking(func(p P) {
			p.Outflow, p.Capacity = algorithms.Rate{Count: 1, Per: 7 * 24 * time.Hour}, 1e6
		}), []string{"outflow: 1/w: a full bucket of 1000000 would take more than 100 years"}},
		"total alone": {leaking(func(p P) {
			p.Outflow, p.Burst, p.OutflowTotal, p.Partitions = algorithms.Rate{}, 0, perSecond, 0
		}), nil},
		"total and outflow": {leaking(func(p P) { p.OutflowTotal, p.Partitions = perSecond, 1 }),
			nil},
		"total on many partitions": {leaking(func(p P) {
			p.OutflowTotal, p.Partitions = perSecond, 2
		}), []string{
			"partitions: must be 1 with outflow_total, not 2",
		}},
		"total and a burst of nobody": {leaking(func(p P) {
			p.Outflow, p.Burst, p.OutflowTotal, p.Partitions = algorithms.Rate{}, 2, perSecond, 1
		}), []string{"burst: requires an outflow"}},
		"total from Go": {leaking(func(p P) {
			p.OutflowTotal, p.Partitions = algorithms.Rate{Count: 1}, 1
		}), []string{
			"outflow_total: 1/0s: ",
		}},
		"slow total": {leaking(func(p P) {
			p.OutflowTotal, p.Partitions, p.Capacity = algorithms.Rate{Count: 1,
				Per: 7 * 24 * time.Hour}, 1, 1e6
		}), []string{"outflow_total: 1/w: a full bucket of 1000000"}},
		"total of a meter": {policy.Policy{Name: "m",
			Rule: policy.Rule{Algorithm: policy.LeakingBucket, Outflow: perSecond,
				Capacity: 5},
			OutflowTotal: perSecond, Queue: &policy.Queue{Off: true}}, []string{
			"outflow_total: applies only to policies with a queue",
		}},
		"total at a door": {door(func(p P) {
			p.OutflowTotal, p.Queue = perSecond, &policy.Queue{Capacity: 5}
		}), []string{
			"outflow_total: applies only to leaking_bucket, not to sliding_counter",
		}},
		"peaks": {leaking(func(p P) {
			p.OutflowTotal, p.Partitions = perSecond, 1
			p.Peak, p.PeakTotal = p.Outflow, algorithms.Rate{Count: 3, Per: 2 * time.Second}
		}), nil},
		"peaks below": {leaking(func(p P) {
			p.OutflowTotal, p.Partitions = perSecond, 1
			p.Outflow, p.Peak = perSecond, algorithms.Rate{Count: 59, Per: time.Minute}
			p.PeakTotal = p.Peak
		}), []string{
			"peak: must be at least the outflow (1/s), not 59/m",
			"peak_total: must be at least the outflow_total (1/s), not 59/m",
		}},
		"a peak of nothing": {leaking(func(p P) {
			p.Outflow, p.Burst, p.OutflowTotal, p.Partitions = algorithms.Rate{}, 0, perSecond, 0
			p.Peak = perSecond
		}), []string{"peak: requires an outflow"}},
		"a total peak of nothing": {leaking(func(p P) { p.PeakTotal = perSecond }), []string{
			"peak_total: requires an outflow_total",
		}},
		"peak from Go": {leaking(func(p P) { p.Peak = algorithms.Rate{Count: 1} }), []string{
			"peak: 1/0s: ",
		}},
		"peak of a meter": {policy.Policy{Name: "m",
			Rule: policy.Rule{Algorithm: policy.LeakingBucket, Outflow: perSecond,
				Capacity: 5},
			Peak: perSecond, Queue: &policy.Queue{Off: true}}, []string{
			"peak: applies only to policies with a queue",
		}},
		"peak at a door": {door(func(p P) { p.Peak = perSecond }), []string{
			"peak: applies only to leaking_bucket, not to sliding_counter",
			"peak: requires an outflow",
		}},
		"durations": {leaking(func(p P) {
			p.Timeout, p.MaxAge, p.Retry.MaxCooldown = -1, math.MaxInt64, 1
		}), []string{
			"timeout: must be 1ms to 366d, not -1ns", "max_age: must be 1ms to 366d",
			"retry.max_cooldown: must be 1ms to 366d, not 1ns",
		}},
		"duplicate window too long": {leaking(func(p P) {
			p.DuplicateWindow = policy.Duration(8 * 24 * time.Hour)
		}), []string{"duplicate_window: must be 1s to 7d, not 8d"}},
		"duplicate window too short": {leaking(func(p P) { p.DuplicateWindow = 1 }),
			[]string{"duplicate_window: must be 1s to 7d"}},
		"a step of priority below nothing": {leaking(func(p P) { p.PriorityStep = -1 }),
			[]string{"priority_step: must be 1ms to 366d, not -1ns"}},
		"a step of priority of ages": {leaking(func(p P) { p.PriorityStep = math.MaxInt64 }),
			[]string{"priority_step: must be 1ms to 366d"}},
		"a step of priority at a door": {door(func(p P) { p.PriorityStep = 1e9 }),
			[]string{"priority_step: applies only to policies with a queue"}},
		"sizes": {leaking(func(p P) { p.MaxBytes, p.Dead.MaxBytes = policy.MiB, -1 }), []string{
			"max_bytes: must be 2MiB to 1024TiB, not 1MiB",
			"dead.max_bytes: must be 2MiB to 1024TiB, not -1",
		}},
		"sizes at a door": {door(func(p P) {
			p.MaxBytes, p.Dead.Bodies = policy.GiB, new(bool)
		}), []string{
			"max_bytes: applies only to policies with a queue", "dead: applies only to policies " +
				"with a queue",
		}},
		"retry": {leaking(func(p P) {
			p.Retry = policy.Retry{MaxAttempts: 1001, Backoff: 120 * minute}
		}), []string{
			"retry.max_attempts: must be 1 to 1000, not 1001",
			"retry.backoff: must be at most max_backoff (1h), not 2h",
		}},
		"window too short": {door(func(p P) { p.Window = 999_999 }), []string{
			"window: must be 1ms to 366d",
		}},
		"window too long": {door(func(p P) {
			p.Window = policy.Duration(366*24*time.Hour + 1)
		}), []string{
			"window: must be 1ms to 366d",
		}},
		"log too large": {door(func(p P) {
			p.Algorithm, p.Limit = policy.SlidingLog, 100_001
		}), []string{
			"limit: must be 1 to 100000, not 100001",
		}},
		"largest log": {door(func(p P) { p.Algorithm, p.Limit = policy.SlidingLog, 100_000 }), nil},
		"count": {door(func(p P) { p.Algorithm, p.Count = policy.SlidingLog, "some" }), []string{
			`count: "some": want all or accepted`,
		}},
		"door, queue false": {door(func(p P) { p.Queue = &policy.Queue{Off: true} }), nil},
		"door, queue": {door(func(p P) {
			p.Queue, p.Workers = &policy.Queue{Capacity: 5}, 3
		}), nil},
		"door, queue empty": {door(func(p P) { p.Queue = &policy.Queue{} }), []string{
			"queue.capacity: is required",
		}},
		"door, queue negative": {door(func(p P) {
			p.Queue = &policy.Queue{Capacity: -5}
		}), []string{
			"queue.capacity: must be 1 to 10000000, not -5",
		}},
		"leaking, capacities": {leaking(func(p P) {
			p.Queue = &policy.Queue{Capacity: 5}
		}), []string{
			"queue: must be false for a meter, or omitted",
		}},
		"no queue to run": {door(func(p P) {
			q := full()
			p.Target, p.Retry, p.Workers, p.Timeout = q.Target, q.Retry, 1, minute
		}), []string{"workers: applies only to policies with a queue", "timeout: ", "target: ",
			"retry: "}},
		"meter with workers": {leaking(func(p P) {
			*p = policy.Policy{Name: "m",
				Rule:  policy.Rule{Algorithm: p.Algorithm, Outflow: p.Outflow, Capacity: 5},
				Queue: &policy.Queue{Off: true}, Workers: 3}
		}), []string{"workers: applies only to policies with a queue"}},

		"no target": {leaking(func(p P) { p.Target = nil }), nil},
		"empty target": {leaking(func(p P) { p.Target = &policy.Target{} }), []string{
			"target: requires http or nats",
		}},
		"no url": {targeting(""), []string{url + "is required"}},
		"scheme": {targeting("ftp://host"),
			[]string{url + `"ftp://host": want http:// or https://`}},
		"no scheme": {targeting("api.stripe.com"),
			[]string{url + `"api.stripe.com": want http://`}},
		"host and port only": {targeting("localhost:80"),
			[]string{url + `"localhost:80": want http://`}},
		"no host": {targeting("http://"), []string{url + `"http://" has no host`}},
		"port without host": {targeting("http://:80"),
			[]string{url + `"http://:80" has no host`}},
		"port": {targeting("http://a:70000"),
			[]string{url + `"http://a:70000": the port must be`}},
		"query": {targeting("http://a/?b"),
			[]string{url + `"http://a/?b": must not have a query`}},
		"fragment": {targeting("http://a/#"),
			[]string{url + `"http://a/#": must not have a query or`}},
		"password": {targeting("http://me:hidden@a"),
			[]string{url + "must not contain a user name or"}},
		"broken password": {targeting("http://me:hid den%@a"), []string{url + "is not a URL"}},
		"IPv6 and path":   {targeting("http://[::1]:8080/v1/"), nil},
		"service":         {requesting("billing.charge_v1"), nil},
		"no subject":      {requesting(""), []string{subject + "is required"}},
		"any subject": {requesting("billing.>"),
			[]string{subject + `"billing.>": want tokens`}},
		"any token": {requesting("*.charge"),
			[]string{subject + `"*.charge": want tokens`}},
		"empty token": {requesting("billing..charge"),
			[]string{subject + `"billing..charge": want tokens`}},
		"space": {requesting("a b"),
			[]string{subject + `"a b": must not contain spaces`}},
		"line": {requesting("a\r\nPUB"),
			[]string{subject + `"a\r\nPUB": must not contain spaces`}},
		"not UTF-8": {requesting("a\xff"), []string{subject + `"a\xff": must not contain`}},
		"long subject": {requesting(strings.Repeat("a", 1025)),
			[]string{subject + "must have at most 1024 bytes, not 1025"}},
		"server's subject": {requesting("$JS.API.INFO"),
			[]string{subject + `"$JS.API.INFO": must not begin with $`}},
		"secrets for whoever is called": {leaking(func(p P) {
			p.Target = &policy.Target{HTTP: &policy.HTTPTarget{URL: policy.CallbackURL,
				Headers: policy.TargetHeaders{"Authorization": {File: "/run/token"}}}}
		}), []string{"target.http.headers: cannot be combined with {callback}"}},
		"credentials without secrets": {leaking(func(p P) {
			p.Target.HTTP.OAuth2 = &policy.OAuth2{TokenURL: "https://me:hidden@a/token",
				Params: map[string]string{"client_secret": "secret"},
				TLS:    policy.ClientTLS{CA: "ca.pem"}}
			p.Target.HTTP.TLS = policy.ClientTLS{Cert: "/run/cert.pem"}
		}), []string{
			"target.http.oauth2.token_url: want a URL",
			"target.http.oauth2.client_id: is required",
			"target.http.oauth2.client_secret_file: is required",
			`target.http.oauth2.params: "client_secret" is set by the drainer`,
			`target.http.oauth2.tls.ca: "ca.pem": want an absolute path`,
			"target.http.tls: requires both cert and key",
		}},
		"two credentials": {leaking(func(p P) {
			p.Target.HTTP.Headers = policy.TargetHeaders{"authorization": {File: "/run/token"}}
			p.Target.HTTP.OAuth2 = &policy.OAuth2{TokenURL: "https://a/token", ClientID: "b",
				ClientSecretFile: "/run/secret", Params: map[string]string{"audience": "c"}}
		}), []string{`target.http.headers: "authorization" is set by oauth2`}},
		"two targets": {leaking(func(p P) {
			p.Target = &policy.Target{HTTP: &policy.HTTPTarget{URL: "http://a"},
				NATS: &policy.NATSTarget{Subject: "a"}}
		}), []string{"target.nats: cannot be combined with target.http"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := test.policy.Validate()
			if len(got) != len(test.want) {
				t.Fatalf("found %q, want %q", got, test.want)
			}
			for i, problem := range got {
				if !strings.HasPrefix(problem.String(), test.want[i]) {
					t.Errorf("found %q, want %q", problem, test.want[i])
				}
				if strings.Contains(problem.String(), "den") {
					t.Errorf("%q shows a password", problem)
				}
			}
			if again := test.policy.WithDefaults().Validate(); len(again) != len(got) {
				t.Errorf("with defaults: found %q", again)
			}
		})
	}
}
