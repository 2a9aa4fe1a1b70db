package policy

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/base/decode"
	"github.com/penstock-mq/penstock/internal/base/strict"
)

// Parse reads a policy from JSON. It rejects unknown and repeated fields, wrong types, durations
// without a unit, zeros that would mean the default, and trailing text, in an [*InvalidError]. See
// [Policy.WithDefaults] and [Policy.Validate].
func Parse(data []byte) (p Policy, err error) {
	if err := invalid(strict.JSON(data, &p)); err != nil {
		return Policy{}, err
	}
	return p, nil
}

func invalid(document *strict.File) error {
	var problems []Problem
	for _, p := range document.Problems() {
		problems = append(problems, Problem{p.Place, p.Reason})
	}
	return Invalid(problems)
}

// Read is [Parse], [Policy.WithDefaults] and [Policy.Validate]. It does not report an unreadable
// field as missing, too.
func Read(data []byte) (Policy, error) {
	var p Policy
	document := strict.JSON(data, &p)
	p = p.WithDefaults()
	for _, found := range p.Validate() {
		document.Add(found.Field, "%s", found.Reason)
	}
	if err := invalid(document); err != nil {
		return Policy{}, err
	}
	return p, nil
}

func given(document any) map[string]bool {
	names, value := map[string]bool{}, reflect.ValueOf(document)
	for _, field := range decode.Fields(value.Type()) {
		if !value.FieldByIndex(field.Index).IsZero() {
			names[field.Name] = true
		}
	}
	return names
}

// Problem is at a field ("retry.backoff"), or of the whole policy.
type Problem struct {
	Field  string
	Reason string
}

func (p Problem) String() string {
	if p.Field == "" {
		return p.Reason
	}
	return p.Field + ": " + p.Reason
}

// InvalidError has all problems of a policy or a change.
type InvalidError struct{ Problems []Problem }

func (e *InvalidError) Error() string {
	texts := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		texts[i] = p.String()
	}
	return strings.Join(texts, "; ")
}

// Invalid returns an [*InvalidError], or nil if there are no problems.
func Invalid(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	return &InvalidError{problems}
}

func (d Duration) String() string { return algorithms.FormatDuration(time.Duration(d)) }

func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]. It refuses numbers without a unit.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := algorithms.ParseDuration(string(text))
	if err != nil {
		return err
	}
	*d = Duration(parsed)
	return nil
}

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

// parseSize reads bytes, or KiB, MiB, GiB, TiB. It rejects signs, fractions and MB.
func parseSize(text string) (Size, error) {
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
	parsed, err := parseSize(text)
	if err != nil {
		return err
	}
	*s = parsed
	return nil
}
