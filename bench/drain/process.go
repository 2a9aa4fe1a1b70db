package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"
)

const (
	// patience is how long a child may take for what takes a moment.
	patience = 60 * time.Second
	// glance is how often is looked whether something has happened.
	glance = 10 * time.Millisecond
	// mostLog is how much of a child's log is kept.
	mostLog = 64 << 10
)

// process is a child: the admitter, or this program in another role. It says lines of a word and a value, and is told
// lines.
type process struct {
	name   string
	cmd    *exec.Cmd
	in     io.WriteCloser
	exited chan struct{}
	log    tail
	ready  string // what it said when it was ready

	mu   sync.Mutex
	said map[string]string // what it said last, by first word
}

// start starts a child and waits until it says that it is ready. It must be called by the main goroutine.
func (b *bench) start(ctx context.Context, name, program string, args ...string) (*process, error) {
	p := &process{name: name, exited: make(chan struct{}), said: map[string]string{}}
	p.cmd = exec.Command(program, args...) //nolint:noctx // what ends it is kill, which its starter calls in any case
	p.cmd.Dir = b.dir
	p.cmd.Env = append(p.cmd.Environ(), "TMPDIR="+b.dir)
	p.cmd.Stderr = &p.log
	dieWithParent(p.cmd)
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(p.exited)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			word, value, _ := strings.Cut(lines.Text(), " ")
			p.mu.Lock()
			p.said[word] = value
			p.mu.Unlock()
		}
		_ = p.cmd.Wait() // its status is read from ProcessState
	}()
	if p.ready, err = p.await(ctx, "ready"); err != nil {
		p.kill()
		return nil, err
	}
	return p, nil
}

// startChild starts this program in a role.
func (b *bench) startChild(ctx context.Context, name, role string, spec any) (*process, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("encode what %s is to do: %w", name, err)
	}
	return b.start(ctx, name, b.self, childCommand, role, string(text))
}

// heard returns what the child said last after a word.
func (p *process) heard(word string) (value string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	value, ok = p.said[word]
	return value, ok
}

// await waits until the child has said a word, and forgets it.
func (p *process) await(ctx context.Context, word string) (value string, err error) {
	err = until(ctx, patience, fmt.Sprintf("%s says %q", p.name, word), func() (bool, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		var ok bool
		if value, ok = p.said[word]; ok {
			delete(p.said, word)
			return true, nil
		}
		select {
		case <-p.exited:
			return false, fmt.Errorf("%s ended: %s\n%s", p.name, p.cmd.ProcessState, p.log.String())
		default:
			return false, nil
		}
	})
	return value, err
}

// ask tells the child a line and waits for its answer, which begins with the line's first word.
func (p *process) ask(ctx context.Context, word, value string) (string, error) {
	if _, err := fmt.Fprintf(p.in, "%s %s\n", word, value); err != nil {
		return "", fmt.Errorf("tell %s to %s: %w", p.name, word, err)
	}
	return p.await(ctx, word)
}

// kill ends the child, if it still runs, and waits for that.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // its only error is that the process has ended
	<-p.exited
}

// until waits until done says so, at most for a time.
func until(ctx context.Context, most time.Duration, what string, done func() (bool, error)) error {
	ticker := time.NewTicker(glance)
	defer ticker.Stop()
	end := time.After(most)
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-end:
			return fmt.Errorf("waited %v in vain until %s", most, what)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// pass lets time pass.
func pass(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tail is the end of a child's log.
type tail struct {
	mu   sync.Mutex
	data bytes.Buffer
}

// Write implements [io.Writer].
func (t *tail) Write(data []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data.Write(data)
	if over := t.data.Len() - mostLog; over > 0 {
		t.data.Next(over)
	}
	return len(data), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.data.String()
}
