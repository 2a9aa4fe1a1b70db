// Package telemetry makes the process's logger and its Prometheus metrics.
package telemetry

import (
	"fmt"
	"io"
	"log/slog"
)

func NewLogger(w io.Writer, level slog.Leveler, format string) (*slog.Logger, error) {
	options := &slog.HandlerOptions{Level: level}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("log format %q: want text or json", format)
}
