package redisstore

import (
	"strings"

	"github.com/penstock-mq/penstock/algorithms"
)

// parseNumber parses digits below 2^53.
func parseNumber(text string) (int64, bool) {
	if text == "" {
		return 0, false
	}
	var n int64
	for i := range len(text) {
		digit := text[i] - '0'
		if digit > 9 {
			return 0, false
		}
		if n = 10*n + int64(digit); n >= exact {
			return 0, false
		}
	}
	return n, true
}

// parsePair takes empty text for zeros.
func parsePair(text, separator string) (a, b int64, ok bool) {
	if text == "" {
		return 0, 0, true
	}
	first, second, _ := strings.Cut(text, separator)
	a, ok = parseNumber(first)
	b, okToo := parseNumber(second)
	return a, b, ok && okToo
}

func parseMeter(text string) (us, frac int64, ok bool) {
	if us, ok = parseNumber(text); ok {
		return us, 0, true
	}
	return parsePair(text, "+")
}

func parseTokenBucket(text string) (algorithms.TokenBucketState, bool) {
	us, frac, ok := parseMeter(text)
	return algorithms.TokenBucketState{FullAt: us, Frac: frac}, ok
}

func parseLeakingBucket(text string) (algorithms.LeakingBucketState, bool) {
	us, frac, ok := parseMeter(text)
	return algorithms.LeakingBucketState{EmptyAt: us, Frac: frac}, ok
}

func parseFixedWindow(text string) (algorithms.FixedWindowState, bool) {
	start, used, ok := parsePair(text, ":")
	return algorithms.FixedWindowState{Start: start, Used: used}, ok
}

func parseSlidingCounter(text string) (algorithms.SlidingCounterState, bool) {
	if text == "" {
		return algorithms.SlidingCounterState{}, true
	}
	first, counts, _ := strings.Cut(text, ":")
	start, ok := parseNumber(first)
	previous, current, okToo := parsePair(counts, ":")
	return algorithms.SlidingCounterState{Start: start, Previous: previous, Current: current}, ok &&
		okToo && counts != ""
}
