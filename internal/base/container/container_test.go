package container

import (
	"math"
	"testing"
	"testing/fstest"
)

const mib = 1 << 20

// The files of processes in containers and services, as Linux shows them.
func TestTheLeastLimitOfTheControlGroupsHolds(t *testing.T) {
	const machine = "MemTotal:       24684160 kB\nMemFree:        22879128 kB\n"
	const (
		v1      = "sys/fs/cgroup/memory/"
		v2      = "sys/fs/cgroup/"
		service = "system.slice/penstock.service"
	)
	tests := map[string]struct {
		files map[string]string
		want  int64
	}{
		"version 2, in a container": {map[string]string{
			"proc/self/cgroup": "0::/\n", v2 + "memory.max": "268435456\n",
			"proc/meminfo": machine}, 256 * mib},
		"version 2, a service": {map[string]string{
			"proc/self/cgroup":             "0::/" + service + "\n",
			v2 + "system.slice/memory.max": "max\n",
			v2 + service + "/memory.max":   "536870912\n",
			"proc/meminfo":                 machine}, 512 * mib},
		"version 2, a parent's limit": {map[string]string{
			"proc/self/cgroup":              "0::/pod/container\n",
			v2 + "pod/memory.max":           "134217728\n",
			v2 + "pod/container/memory.max": "268435456\n",
			"proc/meminfo":                  machine}, 128 * mib},
		"version 2, outside of its namespace": {map[string]string{
			"proc/self/cgroup": "0::/../../other\n", v2 + "memory.max": "268435456\n"},
			256 * mib},
		"version 1, mounted as the root": {map[string]string{
			"proc/self/cgroup": "5:cpuacct,cpu:/docker/4f\n" +
				"4:memory:/docker/4f\n0::/\n",
			v1 + "memory.limit_in_bytes": "268435456\n",
			"proc/meminfo":               machine}, 256 * mib},
		"version 1, beside another controller": {map[string]string{
			"proc/self/cgroup":               "4:hugetlb,memory:/a/b\n",
			v1 + "memory.limit_in_bytes":     "9223372036854771712\n",
			v1 + "a/memory.limit_in_bytes":   "9223372036854771712\n",
			v1 + "a/b/memory.limit_in_bytes": "67108864\n",
			"proc/meminfo":                   machine}, 64 * mib},
		"no limit": {map[string]string{
			"proc/self/cgroup": "4:memory:/\n0::/\n", v2 + "memory.max": "max\n",
			v1 + "memory.limit_in_bytes": "9223372036854771712\n",
			"proc/meminfo":               machine}, 24684160 << 10},
		"no Linux": {nil, math.MaxInt64},
		"unreadable": {map[string]string{"proc/self/cgroup": "nonsense",
			"proc/meminfo": "?", v2 + "memory.max": "-1"}, math.MaxInt64},
	}
	for name, test := range tests {
		files := fstest.MapFS{}
		for file, text := range test.files {
			files[file] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := limit(files); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

func TestADefaultIsAtMostItsShareOfTheMemory(t *testing.T) {
	for _, n := range []int64{1, 4, 8} {
		if got, want := Share(math.MaxInt64, n), Memory()/n; got != want {
			t.Errorf("an %d-th is %d, want %d", n, got, want)
		}
	}
	if got := Share(1, 4); got != 1 {
		t.Errorf("a byte became %d", got)
	}
}
