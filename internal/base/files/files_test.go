package files

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"testing"
)

func TestAShortageOfFilesIsToldFromOtherFailures(t *testing.T) {
	dial := func(why error) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", why)}
	}
	for _, err := range []error{
		dial(syscall.EMFILE), fmt.Errorf("call target: %w", dial(syscall.ENFILE)),
		&fs.PathError{Op: "open", Path: "/run/key", Err: syscall.EMFILE},
		&net.DNSError{Err: dial(syscall.EMFILE).Error(), Name: "example.com"},
	} {
		if !Short(err) {
			t.Errorf("%v is another failure", err)
		}
	}
	for _, err := range []error{
		nil, dial(syscall.ECONNREFUSED), &fs.PathError{Err: syscall.ENOSPC},
		errors.New("target answered 500: accept: too many open files"),
		&net.DNSError{Err: "no such host", Name: "example.com"},
	} {
		if Short(err) {
			t.Errorf("%v is taken for a shortage of files", err)
		}
	}
	if Limit() < 1 {
		t.Errorf("the limit is %d", Limit())
	}
}
