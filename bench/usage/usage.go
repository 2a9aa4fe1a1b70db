// Package usage measures a process's use of the machine.
package usage

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Memory returns a process's resident anonymous memory in bytes.
func Memory(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, "RssAnon:"); found {
			kilobytes, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest),
				" kB"), 64)
			return kilobytes * 1024, err
		}
	}
	return 0, errors.New("no RssAnon")
}
