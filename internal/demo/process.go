package main

import (
	"context"
	"os/exec"
	"syscall"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/proctest"
)

type process struct {
	*proctest.Process
	name  string
	ready map[string]string
}

func start(ctx context.Context, name, program string, args ...string) (*process, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	p, err := proctest.Open(cmd)
	if err != nil {
		return nil, err
	}
	ready, err := p.Ready(ctx)
	if err != nil {
		p.Kill()
		return nil, err
	}
	return &process{p, name, ready}, nil
}

func (p *process) pid() int { return p.Cmd.Process.Pid }
