//go:build race

package proctest

const raced = true
