package follow_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/penstock-mq/penstock/internal/server/follow"
)

// A file is read once it has not changed for a poll, even if its incomplete content was valid.
func TestAChangeIsReportedOnceItIsComplete(t *testing.T) {
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

func TestADirectoryChangesWithItsFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one", "1")
	w := follow.Watching(dir)
	changes := func(what string) {
		t.Helper()
		if now, then, after := w.Changed(), w.Changed(), w.Changed(); now || !then || after {
			t.Errorf("%s: changed %v, %v, %v", what, now, then, after)
		}
	}
	write("one", "one")
	changes("a file is another")
	write("two", "2")
	changes("a file more")
	if err := os.Remove(filepath.Join(dir, "one")); err != nil {
		t.Fatal(err)
	}
	changes("a file less")
}
