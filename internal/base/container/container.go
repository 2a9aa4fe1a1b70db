// Package container divides the memory that this process may use.
package container

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Memory returns the least of the memory limits of the process's control groups, GOMEMLIMIT at the
// first call, and the machine's memory. [math.MaxInt64] means unknown.
var Memory = sync.OnceValue(func() int64 {
	return min(limit(os.DirFS("/")), debug.SetMemoryLimit(-1))
})

// Share returns a default of most bytes, or an n-th of Memory if that is less.
func Share(most, n int64) int64 { return min(most, Memory()/n) }

// limit reads control groups of version 1 and 2. A limit of a parent holds for its groups too. In a
// container the process's group is often mounted as the root, and its path is unknown there.
func limit(root fs.FS) (least int64) {
	least = math.MaxInt64
	read := func(name string) string {
		text, _ := fs.ReadFile(root, name) // not there: no such limit
		return strings.TrimSpace(string(text))
	}
	bound := func(number string, unit int64) {
		// version 1 has a huge number without a limit, version 2 the word max
		if n, err := strconv.ParseInt(number, 10, 64); err == nil && n > 0 && n < 1<<53 {
			least = min(least, n*unit)
		}
	}
	if words := strings.Fields(read("proc/meminfo")); len(words) > 1 { // MemTotal: 123 kB
		bound(words[1], 1<<10)
	}
	for line := range strings.Lines(read("proc/self/cgroup")) {
		_, named, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, _ := strings.Cut(named, ":")
		dir, file := "sys/fs/cgroup", "memory.max"
		if controllers != "" {
			dir, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
			if !slices.Contains(strings.Split(controllers, ","), "memory") {
				continue
			}
		}
		for group = path.Clean("/" + group); ; group = path.Dir(group) {
			bound(read(path.Join(dir, group, file)), 1)
			if group == "/" {
				break
			}
		}
	}
	return least
}
