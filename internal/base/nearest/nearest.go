// Package nearest finds the intended word for a misspelt one.
package nearest

import "strings"

// Hint returns "; did you mean WORD?" with the nearest candidate, or "".
func Hint(word string, candidates []string) string {
	if nearest := To(word, candidates); nearest != "" {
		return "; did you mean " + nearest + "?"
	}
	return ""
}

// To returns the nearest candidate, or "": at most a third of the letters differ, ignoring case, or
// one is the beginning of the other, or its last words, such as attempts of max_attempts.
func To(word string, candidates []string) (nearest string) {
	const most = 64 // bytes: longer than any name
	if len(word) > most {
		return ""
	}
	word = strings.ToLower(word)
	best := max(1, len(word)/3) + 1
	for _, candidate := range candidates {
		if d := distance(word, strings.ToLower(candidate)); d < best {
			best, nearest = d, candidate
		}
	}
	if nearest != "" {
		return nearest
	}
	for _, candidate := range candidates {
		if min(len(word), len(candidate)) >= 3 &&
			(partOf(word, candidate) || partOf(candidate, word)) {
			return candidate
		}
	}
	return ""
}

func partOf(word, whole string) bool {
	return strings.HasPrefix(whole, word) || strings.HasSuffix(whole, "_"+word) ||
		strings.HasSuffix(whole, "-"+word)
}

// distance returns the Levenshtein distance in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
