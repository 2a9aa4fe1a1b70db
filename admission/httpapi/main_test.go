package httpapi

import (
	"log/slog"
	"os"
	"testing"
)

// Panics and refusals are what many tests here bring about: their lines say nothing.
func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}
