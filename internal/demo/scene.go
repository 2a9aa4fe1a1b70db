package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

type scene struct {
	*penstock
	api     *api
	second  *api // with the limit counted from the start
	traffic *traffic
	machine *machine
	out     *screen

	killSent  time.Time
	killDone  time.Time
	resumed   time.Time
	successor *process
	mostHeld  int
	letters   int
}

// longestTakeover includes the time for which requests that the dead drainer may have sent count.
const longestTakeover = lease + maxDelay + apiWindow + 2*time.Second

// onTheWay bounds how long an event is under way from a drainer that is killed.
const onTheWay = time.Second

// polling interval
const look = 100 * time.Millisecond

func (s *scene) play(ctx context.Context) error {
	jobs := trickle.jobs
	for _, b := range bursts {
		jobs += b.jobs
	}
	s.out.say("sending %d jobs, half over HTTP, half as NATS publishes: a trickle, then %d bursts",
		jobs, len(bursts))
	sending, stop := context.WithCancel(ctx)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		s.traffic.send(sending, trickle, bursts)
	}()
	defer func() {
		stop()
		<-sent
	}()

	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := s.ended(); err != nil {
			return err
		}
		held, err := s.held(ctx)
		if err != nil {
			return err
		}
		s.mostHeld = max(s.mostHeld, held)
		done, refused, lately := s.api.count()
		totals := s.traffic.totals()
		_, others, _ := s.second.count()
		s.out.progress("waiting %4d   started %4d   refused %4d   rate now %2d/s   429s %d "+
			"(counted from the start: %d)", max(totals.accepted()-done, 0), done, totals.refused,
			lately, refused, others)

		if s.killSent.IsZero() && done >= jobs/2 {
			if err := s.kill(ctx); err != nil {
				return err
			}
		}
		if !s.killSent.IsZero() && s.resumed.IsZero() {
			if err := s.awaitSuccessor(ctx); err != nil {
				return err
			}
		}
		select {
		case <-sent:
			if held == 0 && !s.killSent.IsZero() && s.api.finished(s.traffic.accepted()) {
				s.letters, err = s.buried(ctx)
				return err
			}
		default:
		}
	}
}

func (s *scene) kill(ctx context.Context) error {
	s.killSent = time.Now()
	if err := s.killOwner(ctx); err != nil {
		return err
	}
	s.killDone = time.Now()
	s.out.say("killed %s (kill -9 %d), which owned the bucket", s.killed.name, s.killed.pid())
	return nil
}

// awaitSuccessor waits for a request on a connection made after the dead drainer's end.
func (s *scene) awaitSuccessor(ctx context.Context) (err error) {
	for _, r := range s.api.seen() {
		if r.connected.After(s.killDone) {
			s.resumed = r.at
			break
		}
	}
	if s.resumed.IsZero() {
		return nil
	}
	if s.successor, err = s.owner(ctx, policyName, s.partition); err != nil {
		return err
	}
	name := "nobody"
	if s.successor != nil {
		name = s.successor.name
	}
	s.out.say("%s took the bucket over: %.1f s after the kill it started the next job (lease %v, "+
		"and the dead drainer's requests count for %v)", name, s.takeover().Seconds(), lease,
		maxDelay+apiWindow)
	return nil
}

func (s *scene) takeover() time.Duration { return s.resumed.Sub(s.killSent) }

// findings judge the laws by the drainers' own clock, and say what the API saw.
type findings struct {
	starts     int
	unreported int // jobs at the API of whose start no drainer told, apart from the kill
	done       int
	lost       []string
	repeated   int
	twice      []string
	unknown    int // done, but the acceptance was lost
	unordered  int // starts after the start of a job accepted later
	counted    int
	busiest    int
	tooMany    string  // starts in a window, or empty
	rate       float64 // with a backlog, outside the takeover
	least      float64 // leastShare of N ÷ (T + mean latency)
	measured   time.Duration
	stalls     time.Duration

	throttled int
	arrived   int // at the API in its busiest second
	overtaken int // requests after the request of a job accepted later
}

func (s *scene) findings() findings {
	seen, starts := s.api.seen(), s.started()
	accepted := s.traffic.accepted()
	f := findings{starts: len(starts), busiest: busiest(starts, time.Second),
		arrived: busiest(seen, s.api.window), tooMany: exceeded(starts)}
	f.lost = s.api.missing(accepted)
	f.done = len(accepted) - len(f.lost)
	s.count(&f, starts, seen, accepted)
	f.unordered, _ = s.outOfOrder(starts, s.killDone)
	_, f.overtaken = s.outOfOrder(seen, s.resumed)
	s.pace(&f, starts)
	return f
}

// count looks at each request by its job.
func (s *scene) count(f *findings, starts, seen []arrival, accepted []string) {
	known, reported := map[string]bool{}, map[string]bool{}
	for _, job := range accepted {
		known[job] = true
	}
	for _, r := range starts {
		reported[r.job] = true
	}
	first := map[string]arrival{}
	for _, r := range seen {
		if r.attempt != 1 {
			f.counted++
		}
		if !reported[r.job] && (s.killSent.IsZero() || r.at.Before(s.killSent.Add(-onTheWay)) ||
			r.at.After(s.killDone)) {
			f.unreported++
		}
		if !r.allowed {
			f.throttled++
			continue
		}
		if earlier, again := first[r.job]; again {
			if !s.killSent.IsZero() && earlier.at.Before(s.killDone) && r.at.After(s.killSent) {
				f.repeated++
			} else {
				f.twice = append(f.twice, r.job)
			}
			continue
		}
		first[r.job] = r
		if !known[r.job] {
			f.unknown++
		}
	}
}

// outOfOrder counts the first starts, or requests, of jobs after one of a job accepted later. A
// successor begins with the oldest job.
func (s *scene) outOfOrder(list []arrival, takeover time.Time) (jobs, requests int) {
	latest, taken := 0, false
	came := map[string]bool{}
	for _, r := range list {
		if !taken && !takeover.IsZero() && !r.at.Before(takeover) {
			latest, taken = 0, true
		}
		var number int
		_, _ = fmt.Sscanf(r.job, policyName+":%d", &number)
		switch again := came[r.job]; {
		case number > latest:
			latest = number
		case !again:
			jobs++
			requests++
		default:
			requests++
		}
		came[r.job] = true
	}
	return jobs, requests
}

// pace measures the rate with a backlog, until the kill and again after it, when the requests that
// the dead drainer may have sent no longer count.
func (s *scene) pace(f *findings, starts []arrival) {
	var before, after []arrival
	for _, r := range starts {
		switch {
		case r.at.Before(s.traffic.backlogFrom):
		case s.killSent.IsZero() || r.at.Before(s.killSent):
			before = append(before, r)
		case r.at.After(s.resumed.Add(apiWindow + maxDelay)):
			after = append(after, r)
		}
	}
	intervals := 0
	for _, part := range [][]arrival{before, after} {
		if len(part) < 2 {
			continue
		}
		from, to := part[0].at, part[len(part)-1].at
		intervals += len(part) - 1
		f.measured += to.Sub(from)
		f.stalls += s.machine.total(from, to)
	}
	if f.measured > 0 {
		f.rate = float64(intervals) / f.measured.Seconds()
	}
	f.least = leastShare * apiLimit / (apiWindow + s.latency()).Seconds()
}

// exceeded describes the first window of at least a second with more starts than law 2 allows.
func exceeded(starts []arrival) string {
	for i := range starts {
		for j := i + 1; j < len(starts); j++ {
			window := max(starts[j].at.Sub(starts[i].at), time.Second)
			most := peak*(window.Seconds()+0.002) + burstSize
			if n := j - i + 1; float64(n) > most {
				return fmt.Sprintf("%d starts in %v by the drainers' clock, %.1f are allowed", n,
					window.Round(time.Millisecond), most)
			}
		}
	}
	return ""
}

// in percent of the measured time
func (f findings) stalled() float64 {
	if f.measured == 0 {
		return 0
	}
	return 100 * f.stalls.Seconds() / f.measured.Seconds()
}

// leastShare is the share of the possible rate that is wanted.
const leastShare = 0.95

func (s *scene) broken(f findings) (broken []string) {
	law := func(number int, name, format string, args ...any) {
		broken = append(broken,
			fmt.Sprintf("law %d (%s): ", number, name)+fmt.Sprintf(format, args...))
	}
	if s.mostHeld > capacity {
		law(1, "bound", "the bucket held %d jobs, more than %d", s.mostHeld, capacity)
	}
	if f.tooMany != "" {
		law(2, "rate", "%s", f.tooMany)
	}
	if f.unreported > 0 {
		law(2, "rate", "no drainer told of %d starts, so it is not known whether they were in time",
			f.unreported)
	}
	if f.arrived > apiLimit {
		law(2, "rate", "the API counted %d requests in a second, and allows %d", f.arrived,
			apiLimit)
	}
	if f.rate*f.measured.Seconds() < f.least*(f.measured-f.stalls).Seconds() {
		law(2, "rate", "%.2f/s is less than %.2f/s, %v of N ÷ (T + latency), and stalls of this "+
			"machine explain no more than %.2f %%", f.rate, f.least, leastShare,
			f.stalled())
	}
	if len(f.lost) > 0 {
		law(3, "no loss", "accepted and never done: %s", some(f.lost))
	}
	if s.letters > 0 {
		law(3, "no loss", "%d dead letters, though no job failed", s.letters)
	}
	if len(f.twice) > 0 {
		law(3, "no loss", "the kill does not explain why these ran twice: %s", some(f.twice))
	}
	if f.unordered > 0 {
		law(4, "order", "%d jobs started after a job accepted later", f.unordered)
	}
	if f.counted > 0 {
		law(6, "waiting is not failing",
			"%d requests were not a first attempt, though none had failed", f.counted)
	}
	if n := s.traffic.withoutRetry; n > 0 {
		law(7, "a clear no", "%d refusals did not tell when to come back", n)
	}
	if n := len(s.traffic.failures); n > 0 {
		law(7, "a clear no", "%d answers were neither yes nor no, such as: %v", n,
			s.traffic.failures[0])
	}
	switch {
	case s.killSent.IsZero():
		broken = append(broken,
			"half of the jobs were not done in time, so the owner was not killed")
	case s.resumed.IsZero():
		broken = append(broken, "nobody took the bucket over")
	case s.takeover() > longestTakeover:
		broken = append(broken, fmt.Sprintf("a takeover takes at most the lease, max_delay, the "+
			"window and 2 s: it took %v", s.takeover()))
	}
	return broken
}

func some(jobs []string) string {
	const few = 5
	if len(jobs) <= few {
		return strings.Join(jobs, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(jobs[:few], ", "), len(jobs)-few)
}
