// Package telemetry makes what operators watch: the process's logger and its Prometheus metrics.
package telemetry

import (
	"fmt"
	"io"
	"log/slog"
)

// NewLogger makes a logger that writes to w. Level is debug, info, warn or error; format is text or json. Anything else
// is an error.
func NewLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	levels := map[string]slog.Level{
		"debug": slog.LevelDebug,
		"info":  slog.LevelInfo,
		"warn":  slog.LevelWarn,
		"error": slog.LevelError,
	}
	least, ok := levels[level]
	if !ok {
		return nil, fmt.Errorf("log level %q: want debug, info, warn or error", level)
	}
	options := &slog.HandlerOptions{Level: least}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("log format %q: want text or json", format)
}
