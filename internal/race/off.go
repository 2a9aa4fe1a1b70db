//go:build !race

package race

// Slower multiplies timeouts for NATS: 1 without the race detector.
const Slower = 1
