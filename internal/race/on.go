//go:build race

package race

// Slower is how many times as long a program waits for NATS before it gives up, because with the
// race detector everything takes longer, the server inside included: five times at least.
const Slower = 5
