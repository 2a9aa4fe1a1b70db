package policy_test

import (
	"encoding/json"
	"testing"

	"github.com/penstock-mq/penstock/policy"
)

func TestSize(t *testing.T) {
	for text, want := range map[string]struct {
		size policy.Size
		text string
	}{
		`"64MiB"`:      {64 * policy.MiB, "64MiB"},
		`"10GiB"`:      {10 * policy.GiB, "10GiB"},
		`"2048KiB"`:    {2 * policy.MiB, "2MiB"},
		`"3TiB"`:       {3 * policy.TiB, "3TiB"},
		`"65537"`:      {65537, "65537"},
		`1048576`:      {policy.MiB, "1MiB"},
		`"0"`:          {0, "0"},
		`"8388607TiB"`: {8388607 * policy.TiB, "8388607TiB"},
	} {
		var got policy.Size
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want.size ||
			got.String() != want.text {
			t.Errorf("%s: read as %d, written as %s, %v", text, got, got, err)
		}
	}
	for _, text := range []string{`""`, `"MiB"`, `"64MB"`, `"64 MiB"`, `"-1"`, `-1`, `1.5`,
		`"1.5GiB"`, `1e6`, `true`, `[1]`,
		`"8388608TiB"`, `"9223372036854775808"`, `"0x10"`} {
		var got policy.Size
		if err := json.Unmarshal([]byte(text), &got); err == nil {
			t.Errorf("%s: read as %d", text, got)
		}
	}
}
