package admission

import (
	"context"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
)

const (
	// askTimeout is how long a job's answer may wait for its valve.
	askTimeout = 20 * time.Millisecond
	// maxQuestions bounds one request to a valve; a fuller batch is sent beside the one on its way.
	maxQuestions = job.MaxExpected
)

// expectations asks valves when jobs start. While one request to a partition is on its way, the
// questions of that partition gather for the next, so that there are as many requests as round
// trips and not as jobs.
type expectations struct {
	valves Valves
	within time.Duration // askTimeout, longer in a test

	mu     sync.Mutex
	silent map[partition]time.Time // those whose valve did not say when a job would start: until …
	lines  map[partition]*line     // of the partitions with a request on its way
}

type partition struct {
	policy string
	number int
}

// line is the queue of questions to one partition.
type line struct{ next *batch }

// batch is one request: its questions until it is sent, its answers after done is closed.
type batch struct {
	deadline time.Time // of the oldest question
	jobs     []uint64
	done     chan struct{}
	starts   map[uint64]start
}

// start is when a job starts, as its valve expects, and where it waits; zero when no valve said so.
type start struct {
	known    bool          // the delay
	delay    time.Duration // 0: it has started
	position int           // how many of its bucket start before it
	depth    int           // how many jobs its bucket holds; 0 unless it waits for its turn
}

func newExpectations(valves Valves) *expectations {
	return &expectations{valves: valves, within: askTimeout, lines: make(map[partition]*line),
		silent: make(map[partition]time.Time)}
}

// ask returns when the job starts.
func (e *expectations) ask(ctx context.Context, p partition, job uint64) start {
	b := e.join(p, job)
	select {
	case <-b.done:
		return b.starts[job]
	case <-ctx.Done():
		return start{}
	}
}

// join adds the question to the partition's next batch, and sees to it that the batch is sent.
func (e *expectations) join(p partition, job uint64) *batch {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.lines[p]
	if l == nil {
		l = &line{}
		e.lines[p] = l
		defer func() { go e.run(p, l) }()
	}
	if l.next == nil {
		l.next = &batch{deadline: time.Now().Add(e.within), done: make(chan struct{})}
	}
	b := l.next
	b.jobs = append(b.jobs, job)
	if len(b.jobs) == maxQuestions {
		l.next = nil
		go e.send(p, b)
	}
	return b
}

// run sends one batch after the other until there are no more questions. Every batch has a
// deadline, so run ends soon after the last question.
func (e *expectations) run(p partition, l *line) {
	for {
		e.mu.Lock()
		b := l.next
		l.next = nil
		if b == nil {
			delete(e.lines, p)
		}
		e.mu.Unlock()
		if b == nil {
			return
		}
		e.send(p, b)
	}
}

// send asks the valve. Without an answer in time the batch stays without starts: nothing better is
// known.
func (e *expectations) send(p partition, b *batch) {
	defer close(b.done)
	ctx, cancel := context.WithDeadline(context.Background(), b.deadline)
	defer cancel()
	answer, err := e.valves.AskValve(ctx, p.policy, p.number,
		job.Question{Op: job.OpExpect, Jobs: b.jobs})
	if err != nil || answer.Error != "" {
		return
	}
	b.starts = make(map[uint64]start, len(answer.Starts))
	for _, s := range answer.Starts {
		b.starts[s.Seq] = start{s.Known, max(0, time.Duration(s.DelayMS)*time.Millisecond),
			s.Position, s.Depth}
	}
}

// silence is how long a valve that did not answer is not asked where jobs are to be refused: so
// deadlines hold nobody up for longer than one question.
const silence = time.Second

// start returns in how long a job would start that is accepted now, of the key, priority and costs
// of a question; known is false when no valve can tell, or none answered in time.
func (e *expectations) start(ctx context.Context, p partition,
	room job.Question) (delay time.Duration, known bool) {
	e.mu.Lock()
	silent := time.Now().Before(e.silent[p])
	e.mu.Unlock()
	if silent {
		return 0, false
	}
	ctx, cancel := context.WithTimeout(ctx, e.within)
	defer cancel()
	room.Op = job.OpRoom
	answer, err := e.valves.AskValve(ctx, p.policy, p.number, room)
	if err != nil {
		e.mu.Lock()
		e.silent[p] = time.Now().Add(silence)
		e.mu.Unlock()
	}
	if err != nil || answer.Error != "" || answer.StartMS == nil {
		return 0, false
	}
	return max(0, time.Duration(*answer.StartMS)*time.Millisecond), true
}

// room returns in how long the bucket has room for one more job; known is false when no valve
// answered in time.
func (e *expectations) room(ctx context.Context, p partition,
	key job.Key) (delay time.Duration, known bool) {
	ctx, cancel := context.WithTimeout(ctx, e.within)
	defer cancel()
	answer, err := e.valves.AskValve(ctx, p.policy, p.number,
		job.Question{Op: job.OpRoom, Key: key})
	if err != nil || answer.Error != "" {
		return 0, false
	}
	return max(0, time.Duration(answer.DelayMS)*time.Millisecond), true
}
