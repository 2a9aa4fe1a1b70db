package timepiece

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// /proc/uptime counts the time since boot including sleep. Where namespaces are permitted, the test
// also runs in a time namespace of a machine that has slept for an hour.
func TestTheTimeAsleepIsCounted(t *testing.T) {
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		t.Fatal(err)
	}
	told, _, _ := strings.Cut(string(text), " ")
	uptime, err := strconv.ParseFloat(told, 64)
	if err != nil {
		t.Fatal(err)
	}
	if off := sinceBoot().Seconds() - uptime; off < -1 || off > 60 {
		t.Errorf("the time since boot is %.2f s off that of /proc/uptime", off)
	}

	const inside = "PENSTOCK_TEST_SLEPT"
	slept := []string{"--user", "--map-root-user", "--time", "--boottime", "3600"}
	if os.Getenv(inside) != "" || exec.Command("unshare", append(slept, "true")...).Run() != nil {
		return
	}
	test := exec.Command("unshare", append(slept, os.Args[0], "-test.run", "^"+t.Name()+"$")...)
	test.Env = append(os.Environ(), inside+"=1")
	if out, err := test.CombinedOutput(); err != nil {
		t.Errorf("an hour asleep: %v\n%s", err, out)
	}
}
