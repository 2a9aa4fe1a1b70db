package record

import (
	"strconv"
	"strings"
)

// ShareKey is the name of the record of who owns a partition.
func ShareKey(policy string, number int) string { return policy + "." + strconv.Itoa(number) }

// sharedPrefix begins no policy's name.
const sharedPrefix = "="

// SharedName is what a limit that policies share is called where policies are named.
func SharedName(limit string) string { return sharedPrefix + limit }

// Shared returns which limit that policies share is called so.
func Shared(name string) (limit string, shared bool) {
	return strings.CutPrefix(name, sharedPrefix)
}

// CheckpointSuffix is what the names of checkpoints end with.
const CheckpointSuffix = ".clocks"

// CheckpointKey is the name of a partition's checkpoint.
func CheckpointKey(policy string, number int) string {
	return ShareKey(policy, number) + CheckpointSuffix
}

// AttemptKey is the name of the record of a job's attempts.
func AttemptKey(policy string, number int, seq uint64) string {
	return ShareKey(policy, number) + "." + strconv.FormatUint(seq, 10)
}
