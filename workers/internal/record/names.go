package record

import (
	"strconv"
	"strings"
)

func ShareKey(policy string, number int) string { return policy + "." + strconv.Itoa(number) }

// sharedPrefix begins no policy's name.
const sharedPrefix = "="

func SharedName(limit string) string { return sharedPrefix + limit }

// Shared returns the shared limit behind a policy name.
func Shared(name string) (limit string, shared bool) {
	return strings.CutPrefix(name, sharedPrefix)
}

const CheckpointSuffix = ".clocks"

func CheckpointKey(policy string, number int) string {
	return ShareKey(policy, number) + CheckpointSuffix
}

func AttemptKey(policy string, number int, seq uint64) string {
	return ShareKey(policy, number) + "." + strconv.FormatUint(seq, 10)
}
