package proctest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

// act is the environment variable that makes this test binary one of the children.
const act = "PENSTOCK_PROCTEST"

var children = map[string]func() int{
	"server": func() int {
		fmt.Println("before")
		fmt.Println("ready http=127.0.0.1:1 plain nats=nats://127.0.0.1:2")
		fmt.Println("ready to say more")
		fmt.Fprintln(os.Stderr, "a line of the log")
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			fmt.Println("heard", in.Text())
		}
		return 0
	},
	"talker": func() int {
		for {
			fmt.Println("a line that nobody reads")
		}
	},
	"failure": func() int {
		fmt.Fprintln(os.Stderr, "it will not do")
		return 3
	},
}

func TestMain(m *testing.M) {
	if child := children[os.Getenv(act)]; child != nil {
		os.Exit(child())
	}
	os.Exit(m.Run())
}

func command(t *testing.T, child string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), act+"="+child)
	return cmd
}

func next(t *testing.T, p *Process, want string) {
	t.Helper()
	select {
	case got := <-p.Lines:
		if got != want {
			t.Errorf("printed %q, want %q", got, want)
		}
	case <-time.After(Patience):
		t.Fatalf("did not print %q", want)
	}
}

func TestAProcessIsReadySpeaksAndEnds(t *testing.T) {
	cmd := command(t, "server")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := Start(t, cmd)
	words, err := p.Ready(t.Context())
	if err != nil || len(words) != 2 || words["http"] != "127.0.0.1:1" ||
		words["nats"] != "nats://127.0.0.1:2" {
		t.Fatalf("%v, %v", words, err)
	}
	next(t, p, "before")
	next(t, p, "ready to say more")
	p.Freeze()
	p.Thaw()
	if _, err := fmt.Fprintln(in, "a word"); err != nil {
		t.Fatal(err)
	}
	next(t, p, "heard a word")
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.End(); err != nil {
		t.Error(err)
	}
	if line, more := <-p.Lines; more {
		t.Errorf("printed %q at its end", line)
	}
	if p.Log.String() != "a line of the log\n" {
		t.Errorf("the log is %q", p.Log)
	}
}

func TestUnreadOutputDoesNotBlock(t *testing.T) {
	var p *Process
	t.Run("its test", func(t *testing.T) {
		p = Start(t, command(t, "talker"))
		for len(p.Lines) < cap(p.Lines) {
			time.Sleep(time.Millisecond)
		}
	})
	if err := p.End(); err == nil || p.Cmd.ProcessState.Success() {
		t.Errorf("%v, %s", err, p.Cmd.ProcessState)
	}
}

func TestAFrozenProcessIsKilled(t *testing.T) {
	p := Start(t, command(t, "server"))
	if _, err := p.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Freeze()
	p.Kill()
	if p.Cmd.ProcessState == nil {
		t.Error("it lives")
	}
}

func TestAnEndedProcessIsNotReady(t *testing.T) {
	p := Start(t, command(t, "failure"))
	_, err := p.Ready(t.Context())
	if err == nil || !strings.Contains(err.Error(), "exit status 3\nit will not do") {
		t.Errorf("%v", err)
	}
	if err := p.End(); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("%v", err)
	}
}

func TestReadyWaitsNoLongerThanItsCaller(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := Start(t, command(t, "talker"))
	if _, err := p.Ready(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestOutputsOfItsOwnAreLeftToACommand(t *testing.T) {
	cmd := command(t, "failure")
	both := new(waittest.Log)
	cmd.Stdout, cmd.Stderr = both, both
	p := Start(t, cmd)
	if err := p.End(); err == nil || both.String() != "it will not do\n" || p.Log.String() != "" {
		t.Errorf("%v, %q, %q", err, both, p.Log)
	}
	if _, err := Open(exec.Command(t.TempDir() + "/nothing")); err == nil {
		t.Error("what is not there is started")
	}
}
