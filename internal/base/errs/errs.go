// Package errs annotates errors.
package errs

import "fmt"

// Annotate puts a text before an error, if there is one. Defer it with a named result.
func Annotate(err *error, format string, args ...any) {
	if *err != nil {
		*err = fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), *err)
	}
}
