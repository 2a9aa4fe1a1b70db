// Package nearest finds the word that somebody probably meant.
package nearest

import "strings"

// Hint is "; did you mean WORD?" with the candidate nearest to a misspelt word, or nothing when
// none is near. Candidates that are as near as each other are taken in their order.
func Hint(word string, candidates []string) string {
	if nearest := To(word, candidates); nearest != "" {
		return "; did you mean " + nearest + "?"
	}
	return ""
}

// To is the candidate nearest to a misspelt word, or nothing when none is near: at most a third of
// the letters differ, whatever their case, or one begins with the other.
func To(word string, candidates []string) (nearest string) {
	const most = 64 // bytes: no name of ours is longer
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
			(strings.HasPrefix(word, candidate) || strings.HasPrefix(candidate, word)) {
			return candidate
		}
	}
	return ""
}

// distance is Levenshtein's: how many bytes must be put in, taken out or replaced to make one text
// the other.
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
