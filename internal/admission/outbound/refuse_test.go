package outbound

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/admission/access"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/base/clienttls"
)

func TestAnswersOfTheProxyAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/troubleshoot.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{} // codes, by statuses
	for _, row := range regexp.MustCompile("(?m)^\\| ((?:`[a-z]+` ?)+) \\| ([\\d, ]+) \\|").
		FindAllStringSubmatch(string(text), -1) {
		for code := range strings.FieldsSeq(row[1]) {
			documented[strings.Trim(code, "`")] = row[2]
		}
	}
	down := &admission.RefusedError{Reason: admission.ErrTargetDown}
	late := &admission.RefusedError{Reason: admission.ErrTooLate}
	for _, err := range []error{down, late, &admission.RequestError{}, access.ErrUnknown,
		admit.ErrForbidden, admission.ErrUnknownPolicy, admission.ErrNoDrainer,
		admission.ErrUnavailable, admit.ErrStarting, admit.ErrStopping, admit.ErrBusy,
		access.ErrProvider, &clienttls.FileError{Err: os.ErrNotExist}, errors.New("reset"), silent,
		stalled, stopping} {
		r := refused(err)
		if !strings.Contains(documented[r.code], fmt.Sprint(r.status)) {
			t.Errorf("%v: %s with %d is not documented: %q", err, r.code, r.status,
				documented[r.code])
		}
	}
}
