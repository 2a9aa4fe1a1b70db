// Package build builds programs for measurements from this repository.
package build

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// Admitter returns the built admitter's file.
func Admitter(ctx context.Context, dir string) (string, error) {
	return filepath.Join(dir, "admitter"), Programs(ctx, dir, "./cmd/admitter")
}

func Programs(ctx context.Context, dir string, packages ...string) error {
	find := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}",
		"github.com/penstock-mq/penstock")
	var problems strings.Builder
	find.Stderr = &problems
	source, err := find.Output()
	if err != nil {
		return fmt.Errorf("find the sources (run this program within bench/): %w\n%s", err,
			problems.String())
	}
	command := exec.CommandContext(ctx, "go", append([]string{"build", "-o", dir + "/"},
		packages...)...)
	command.Dir = strings.TrimSpace(string(source))
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", strings.Join(packages, " "), err, out)
	}
	return nil
}
