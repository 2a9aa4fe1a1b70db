// Package race says whether a program was built with the race detector, as for its tests.
package race
