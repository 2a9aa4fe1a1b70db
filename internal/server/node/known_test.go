package node

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-mq/penstock/internal/base/notice"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
)

func TestAWriterWaitsUntilItsPolicyIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k known
		done := make(chan struct{})
		go func() {
			defer close(done)
			k.wait(t.Context(), "a", 5)
		}()
		for _, set := range []inforce.Entries{{"b": {Revision: 7}}, {"a": {Revision: 4}}} {
			synctest.Wait()
			k.take(set)
		}
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("went on too early")
		default:
		}
		k.take(inforce.Entries{"a": {Revision: 6}})
		<-done
		k.wait(t.Context(), "a", 6)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		k.wait(ctx, "a", 7)
		if took := time.Since(began); took != time.Second {
			t.Errorf("waited %s for what never came", took)
		}
	})
}

func TestACacheReplacesNoOtherFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	c := cache{file: file, log: slog.New(slog.DiscardHandler)}
	for _, text := range []string{"http: {listen: ':8080'}\n", `{"policies":[]}`, "",
		`{"v":1,"pol`} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c.kept = nil
		c.keep(inforce.Entries{})
		now, err := os.ReadFile(file)
		theirs := text != "" && !strings.Contains(text, `"v"`)
		if err != nil || (string(now) == text) != theirs {
			t.Errorf("%q became %q, %v", text, now, err)
		}
	}
}

func TestOrphanedPoliciesAreNotes(t *testing.T) {
	f := &writer{known: &known{}, notices: notice.New(slog.New(slog.DiscardHandler))}
	f.notices.Tell(&orphaned, "mail", "its record is gone")
	if notes := f.notes(); len(notes) != 1 || !strings.Contains(notes[0], "mail") {
		t.Errorf("notes are %q", notes)
	}
}

// A slow check does not delay the next one for long, which finds a deleted stream.
func TestOneSlowLookDoesNotPutOffTheNextForLong(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{0: rationAgain,
		40 * time.Millisecond: 20 * time.Second, time.Hour: rationLatest} {
		if got := restAfter(took, 100); got != want {
			t.Errorf("after %v the next look comes in %v, want %v", took, got, want)
		}
	}
	if got := restAfter(time.Second, 10_000); got != 200*time.Second {
		t.Errorf("with 10,000 policies the next look comes in %v", got)
	}
}
