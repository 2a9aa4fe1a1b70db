// Package build builds the programs that measurements run, from the module that this one measures.
package build

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// Admitter builds the admitter into a directory, and returns its file.
func Admitter(ctx context.Context, dir string) (string, error) {
	find := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}",
		"github.com/penstock-mq/penstock")
	var problems strings.Builder
	find.Stderr = &problems
	source, err := find.Output()
	if err != nil {
		return "", fmt.Errorf("find the sources (run this program within bench/): %w\n%s", err,
			problems.String())
	}
	binary := filepath.Join(dir, "admitter")
	command := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/admitter")
	command.Dir = strings.TrimSpace(string(source))
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the admitter: %w\n%s", err, out)
	}
	return binary, nil
}
