//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

type line struct {
	Time                  time.Time
	Msg, Policy, Job, Key string
	Partition             int
	Attempt               int
	Started               time.Time
}

// readLogs reads starts and takeovers. The process of the last check logs it before the request.
func (w *world) readLogs() error {
	names, err := filepath.Glob(filepath.Join(w.logs, "drainer-*.log"))
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := w.readLog(name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (w *world) readLog(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	life := strings.TrimSuffix(filepath.Base(name), ".log")
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l line
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			continue
		}
		switch l.Msg {
		case "start":
			w.history.starts = append(w.history.starts,
				start{bucket{l.Policy, l.Key}, l.Job, l.Attempt,
					w.instant(life, l.Started), life, false})
		case "start for another drainer":
			w.history.starts = append(w.history.starts,
				start{bucket{l.Policy, l.Key}, l.Job, l.Attempt,
					w.instant(life, l.Time), life, true})
		case "took over a partition: its owner is gone":
			w.history.takeovers = append(w.history.takeovers,
				takeover{l.Policy, l.Partition, w.instant(life, l.Time), life})
		}
	}
	return lines.Err()
}

// keepCopies records each server's copies every two seconds, because they may differ.
func (w *world) keepCopies(ctx context.Context) {
	client := &http.Client{Timeout: time.Second}
	for pause(ctx, 2*time.Second) {
		for i, p := range w.ports {
			text, err := w.copies(client, address(p.monitor))
			if err != nil {
				continue
			}
			name := filepath.Join(w.logs, fmt.Sprintf("copies-%d.log", i))
			if f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
				fmt.Fprintf(f, "%9.3fs  %s\n", w.now().Seconds(), text)
				f.Close()
			}
		}
	}
}

func (w *world) copies(client *http.Client, monitor string) ([]byte, error) {
	response, err := client.Get("http://" + monitor + "/jsz?accounts=true&consumers=true")
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	var line bytes.Buffer
	err = json.Compact(&line, text)
	return line.Bytes(), err
}
