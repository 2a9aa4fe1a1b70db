package paper

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// Plural returns "1 core", "2 cores".
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Grouped returns a number with commas: "1,234,567".
func Grouped[T int | int64](n T) string {
	s := strconv.FormatInt(int64(n), 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Machine describes the machine and the modules' versions.
func Machine(modules ...string) string {
	cpu := "processor not known"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			name, value, _ := strings.Cut(line, ":")
			if strings.TrimSpace(name) == "model name" {
				cpu = strings.TrimSpace(value)
				break
			}
		}
	}
	text := fmt.Sprintf("%s × %s, %s/%s, %s", Plural(runtime.NumCPU(), "core"), cpu, runtime.GOOS,
		runtime.GOARCH, runtime.Version())
	for _, path := range modules {
		if version := Version(path); version != "" {
			text += fmt.Sprintf(", %s %s", path, version)
		}
	}
	return text
}

// Version returns a linked module's version, or "".
func Version(module string) string {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range build.Deps {
		if m.Path == module {
			return m.Version
		}
	}
	return ""
}
