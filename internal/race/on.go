//go:build race

package race

// Slower is how many times as long a program waits for NATS before it gives up: with the race
// detector everything takes at least five times as long, the server inside included.
const Slower = 5
