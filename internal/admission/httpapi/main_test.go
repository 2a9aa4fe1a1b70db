package httpapi

import (
	"log/slog"
	"os"
	"testing"
)

// Many tests provoke panics and refusals, whose log lines are noise.
func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}
