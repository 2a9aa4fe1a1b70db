package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// meter shows progress on a terminal.
type meter struct {
	err io.Writer
	bar *progressbar.ProgressBar // nil: not a terminal
}

func newMeter(err io.Writer, in io.Reader, quiet bool) *meter {
	m, size := &meter{err: err}, int64(-1) // unknown
	if file, ok := in.(*os.File); ok {
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			size = info.Size()
		}
	}
	if file, ok := err.(*os.File); ok && !quiet && term.IsTerminal(int(file.Fd())) {
		m.bar = progressbar.NewOptions64(size, progressbar.OptionSetWriter(err),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionFullWidth(),
			progressbar.OptionSetDescription("0 accepted"),
			progressbar.OptionSetPredictTime(true), progressbar.OptionClearOnFinish())
	}
	return m
}

func (m *meter) reading(in io.Reader) io.Reader {
	if m.bar == nil {
		return in
	}
	return io.TeeReader(in, m.bar)
}

func (m *meter) count(accepted, refusals, waiting int) {
	if m.bar == nil {
		return
	}
	rate := float64(accepted) / max(m.bar.State().SecondsSince, 0.001)
	m.bar.Describe(fmt.Sprintf("%d accepted, %.0f/s, %d refusals, %d waiting", accepted, rate,
		refusals, waiting))
}

// say prints a line above the bar.
func (m *meter) say(format string, args ...any) {
	if m.bar != nil {
		_ = m.bar.Clear()
	}
	fmt.Fprintf(m.err, "penstock: "+format+"\n", args...)
}

func (m *meter) end() {
	if m.bar != nil {
		_ = m.bar.Finish()
	}
}
