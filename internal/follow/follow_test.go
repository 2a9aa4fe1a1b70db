package follow_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/penstock-mq/penstock/internal/follow"
)

// A file that is being written is read when it has stood still for a look, also when what it had
// half way would have been valid.
func TestAChangeCountsWhenItStandsStill(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	w := follow.Watching(file, "")
	look := func(what string, want bool) {
		t.Helper()
		if got := w.Changed(); got != want {
			t.Errorf("%s: changed %v, want %v", what, got, want)
		}
	}
	look("nothing happened", false)
	write("one and")
	look("half of it", false)
	write("one and two")
	look("all of it, this moment", false)
	look("stands still", true)
	look("is known", false)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	look("gone, this moment", false)
	write("three")
	w.Seen()
	look("read by others", false)
	other := file + ".new"
	if err := os.WriteFile(other, []byte("five!"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(other, file); err != nil {
		t.Fatal(err)
	}
	look("another has the name", false)
	look("and keeps it", true)
}
