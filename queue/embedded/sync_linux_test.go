package embedded

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

func TestTheDiskIsSynced(t *testing.T) {
	log, dir := &waittest.Log{}, t.TempDir()
	s := start(t, Options{Dir: dir, Sync: 10 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(log, nil))})
	if got := s.given.SyncInterval; got != ownSync {
		t.Errorf("the server's own rounds are %v apart", got)
	}
	if err := os.Rename(dir, dir+"-away"); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "a failure is logged", func() bool {
		return log.Count("the disk cannot be synced") > 0
	})
	if err := os.Rename(dir+"-away", dir); err != nil {
		t.Fatal(err)
	}
}
