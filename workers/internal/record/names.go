package record

import (
	"strconv"
	"strings"
)

// ShareKey returns the name of a partition's ownership record.
func ShareKey(policy string, number int) string { return policy + "." + strconv.Itoa(number) }

// sharedPrefix begins no policy's name.
const sharedPrefix = "="

// SharedName returns the policy name that stands for a shared limit.
func SharedName(limit string) string { return sharedPrefix + limit }

// Shared returns the shared limit that a policy name stands for.
func Shared(name string) (limit string, shared bool) {
	return strings.CutPrefix(name, sharedPrefix)
}

// CheckpointSuffix ends the names of checkpoints.
const CheckpointSuffix = ".clocks"

// CheckpointKey returns the name of a partition's checkpoint.
func CheckpointKey(policy string, number int) string {
	return ShareKey(policy, number) + CheckpointSuffix
}

// AttemptKey returns the name of a job's attempt record.
func AttemptKey(policy string, number int, seq uint64) string {
	return ShareKey(policy, number) + "." + strconv.FormatUint(seq, 10)
}
