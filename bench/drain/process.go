package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/proctest"
)

const (
	patience = 60 * time.Second
	glance   = 10 * time.Millisecond
)

// process is a child, which reads and writes lines of a word and a value.
type process struct {
	*proctest.Process
	name  string
	in    io.WriteCloser
	ready map[string]string

	mu   sync.Mutex
	said map[string]string
}

// start waits until a child is ready. Only the main goroutine may call it.
func (b *bench) start(ctx context.Context, name, program string,
	args ...string) (p *process, err error) {
	cmd := exec.Command(program, args...)
	cmd.Dir = b.dir
	cmd.Env = append(cmd.Environ(), "TMPDIR="+b.dir)
	p = &process{name: name, said: map[string]string{}}
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if p.Process, err = proctest.Open(cmd); err != nil {
		return nil, err
	}
	go func() {
		for line := range p.Lines {
			word, value, _ := strings.Cut(line, " ")
			p.mu.Lock()
			p.said[word] = value
			p.mu.Unlock()
		}
	}()
	if p.ready, err = p.Ready(ctx); err != nil {
		p.Kill()
		return nil, err
	}
	return p, nil
}

func (b *bench) startChild(ctx context.Context, name, role string, spec any) (*process, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("encode what %s is to do: %w", name, err)
	}
	return b.start(ctx, name, b.self, childCommand, role, string(text))
}

func (p *process) heard(word string) (value string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	value, ok = p.said[word]
	return value, ok
}

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
		case <-p.Exited:
			return false, fmt.Errorf("%s ended: %s\n%s", p.name, p.Cmd.ProcessState, p.Log)
		default:
			return false, nil
		}
	})
	return value, err
}

func (p *process) ask(ctx context.Context, word, value string) (string, error) {
	if _, err := fmt.Fprintf(p.in, "%s %s\n", word, value); err != nil {
		return "", fmt.Errorf("tell %s to %s: %w", p.name, word, err)
	}
	return p.await(ctx, word)
}

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

func pass(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
