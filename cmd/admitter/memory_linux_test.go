package main

import (
	"strings"
	"testing"
)

func TestDefaultsOfMemoryFollowGOMEMLIMIT(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "200MiB")
	p := launch(t, "--config", configure(t, "")).ready()
	p.stop()
	want := "process=200MiB gomemlimit=200MiB drain.memory=50MiB"
	if log := p.Log.String(); !strings.Contains(log, want) {
		t.Errorf("the log has no %q:\n%s", want, log)
	}
}

func TestProgramsBoundTheGoHeap(t *testing.T) {
	p := launch(t, "--config", configure(t, "drain: {memory: 3MiB}")).ready()
	p.stop()
	log := p.Log.String()
	if !strings.Contains(log, "gomemlimit=") || !strings.Contains(log, "drain.memory=3MiB") ||
		strings.Contains(log, "gomemlimit=9223372036854775807") {
		t.Errorf("without GOMEMLIMIT the log has\n%s", log)
	}
}
