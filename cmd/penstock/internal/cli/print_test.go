package cli

import "testing"

func TestEscapeSequencesDoNotReachTheTerminal(t *testing.T) {
	for text, want := range map[string]string{
		"plain":           "plain",
		"größe 日本":        "größe 日本",
		"two\nlines":      "two\nlines",
		"\x1b[2J":         `"\x1b[2J"`,
		"\u009b2J":        `"\u009b2J"`,
		"\u202egnp.exe":   `"\u202egnp.exe"`,
		"a\tb":            `"a\tb"`,
		string([]byte{0}): `"\x00"`,
	} {
		if got := Plain(text); got != want {
			t.Errorf("%q is printed as %s, want %s", text, got, want)
		}
	}
	if got := Line("a\nb", 10); got != `"a\nb"` {
		t.Errorf("a line is %s", got)
	}
}
