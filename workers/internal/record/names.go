package record

import "strconv"

// ShareKey is the name of the record of who owns a partition.
func ShareKey(policy string, number int) string { return policy + "." + strconv.Itoa(number) }

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
