package installation

import (
	"testing"
	"time"
)

func TestReplicasAreAnOddNumber(t *testing.T) {
	for n := -1; n <= 7; n++ {
		if err := CheckReplicas(n); (err == nil) != (n == 1 || n == 3 || n == 5) {
			t.Errorf("%d: %v", n, err)
		}
	}
}

func TestALeaseOutlastsTheLossOfALeader(t *testing.T) {
	for replicas, want := range map[int]time.Duration{
		0: 5 * time.Second, 1: 5 * time.Second, 3: 15 * time.Second, 5: 15 * time.Second,
	} {
		if got := Lease(replicas); got != want {
			t.Errorf("%d replicas: %s, want %s", replicas, got, want)
		}
	}
}

func TestPrefixesArePartOfSubjectsAndNamesOfStreams(t *testing.T) {
	for prefix, good := range map[string]bool{
		DefaultPrefix: true, "a": true, "0-_z": true, "12345678901234567890123456789012": true,
		"": false, "-a": false, "A": false, "a.b": false, "a b": false, "ä": false,
		"123456789012345678901234567890123": false,
	} {
		if err := CheckPrefix(prefix); (err == nil) != good {
			t.Errorf("%q: %v", prefix, err)
		}
	}
}
