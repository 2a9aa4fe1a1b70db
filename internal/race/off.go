//go:build !race

package race

// Slower is how many times as long a program waits for NATS with the race detector, which it has
// not.
const Slower = 1
