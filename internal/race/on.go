//go:build race

package race

// Slower multiplies timeouts for NATS: with the race detector everything, including an embedded
// server, is at least five times as slow.
const Slower = 5
