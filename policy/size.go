package policy

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes, with text in binary units ("64MiB"). 0 means "not given".
type Size int64

// Units of sizes.
const (
	KiB Size = 1 << (10 * (iota + 1))
	MiB
	GiB
	TiB
)

var sizeUnits = []struct {
	name  string
	bytes Size
}{{"TiB", TiB}, {"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}, {"", 1}}

// ParseSize reads bytes, or KiB, MiB, GiB, TiB. It rejects signs, fractions and MB.
func ParseSize(text string) (Size, error) {
	for _, unit := range sizeUnits {
		number, found := strings.CutSuffix(text, unit.name)
		if !found {
			continue
		}
		n, err := strconv.ParseUint(number, 10, 63)
		if err != nil {
			break
		}
		if n > math.MaxInt64/uint64(unit.bytes) {
			return 0, fmt.Errorf("%s: is too large", quote(text))
		}
		return Size(n) * unit.bytes, nil
	}
	return 0, fmt.Errorf("%s: want a size such as 64MiB or 10GiB, or bytes", quote(text))
}

func (s Size) String() string {
	for _, unit := range sizeUnits {
		if s%unit.bytes == 0 && s != 0 {
			return strconv.FormatInt(int64(s/unit.bytes), 10) + unit.name
		}
	}
	return "0"
}

func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s *Size) UnmarshalJSON(data []byte) error {
	text := string(bytes.TrimSpace(data))
	if unquoted, err := strconv.Unquote(text); err == nil {
		text = unquoted
	}
	parsed, err := ParseSize(text)
	if err != nil {
		return err
	}
	*s = parsed
	return nil
}
