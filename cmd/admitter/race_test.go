//go:build race

package main

// raceEnabled says that the tests look for data races, so that the program under test should too.
const raceEnabled = true
