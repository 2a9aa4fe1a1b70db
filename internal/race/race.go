// Package race tells whether the race detector is enabled.
package race
