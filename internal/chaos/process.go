//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// patience exceeds the grace period.
const patience = 40 * time.Second

// process is a program with many lives. Only these are signalled.
type process struct {
	name    string
	command func() *exec.Cmd
	w       *world

	mu     sync.Mutex
	lives  int
	life   life
	cmd    *exec.Cmd
	exited chan struct{}
	frozen bool
	over   bool
}

// start begins a life with its own log.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over || p.livesOn() {
		return nil
	}
	p.lives++
	name := fmt.Sprintf("%s.%d", p.name, p.lives)
	log, err := os.Create(filepath.Join(p.w.logs, name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := p.command()
	cmd.Stdout, cmd.Stderr = log, log
	endWithParent(cmd)
	p.w.launched(name)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	p.life = life{name: name, from: p.w.now(), ending: running}
	p.cmd, p.exited, p.frozen = cmd, make(chan struct{}), false
	exited := p.exited
	go func() {
		_ = cmd.Wait()
		p.mu.Lock()
		p.life.until = p.w.now()
		if p.life.ending == running {
			p.life.ending = fell
			p.w.say("%s ended by itself: %s", name, cmd.ProcessState)
		}
		p.w.history.lived(p.life)
		again := p.life.ending == fell
		p.mu.Unlock()
		close(exited)
		if again {
			time.Sleep(time.Second)
			if err := p.start(); err != nil {
				p.w.say("%v", err)
			}
		}
	}()
	return nil
}

// end thaws a frozen process first, which reacts only to SIGKILL.
func (p *process) end(as ending, signal syscall.Signal) error {
	p.mu.Lock()
	if p.cmd == nil {
		p.mu.Unlock()
		return nil
	}
	cmd, exited := p.cmd, p.exited
	if p.life.ending == running {
		p.life.ending = as
	}
	_ = cmd.Process.Signal(signal)
	if p.frozen {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		p.frozen = false
	}
	p.mu.Unlock()
	select {
	case <-exited:
	case <-time.After(patience):
		_ = cmd.Process.Kill()
		<-exited
		return fmt.Errorf("%s did not stop within %v", p.name, patience)
	}
	if as == stopped && !cmd.ProcessState.Success() {
		return fmt.Errorf("%s was told to stop and ended with %s", p.name, cmd.ProcessState)
	}
	return nil
}

func (p *process) kill() { _ = p.end(killed, syscall.SIGKILL) }

func (p *process) stop() error { return p.end(stopped, syscall.SIGTERM) }

func (p *process) freeze() { p.hold(true, syscall.SIGSTOP) }
func (p *process) thaw()   { p.hold(false, syscall.SIGCONT) }

func (p *process) hold(frozen bool, signal syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = frozen
	_ = p.cmd.Process.Signal(signal)
}

func (p *process) finish() {
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	p.kill()
}

// The caller holds the lock.
func (p *process) livesOn() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}
