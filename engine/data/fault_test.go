package data

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
	"testing"
)

func TestErrorsOfTheSystemAreNoDamage(t *testing.T) {
	for _, no := range []syscall.Errno{syscall.EACCES, syscall.EMFILE, syscall.EIO, syscall.ESTALE, syscall.ENOMEM} {
		if err := (&fs.PathError{Op: "read", Path: "a", Err: no}); IsDamage(err) {
			t.Errorf("%v is damage", err)
		}
	}
	if IsDamage(os.ErrNotExist) || IsDamage(nil) {
		t.Error("a missing file is damage")
	}
	if !IsDamage(io.ErrUnexpectedEOF) || !IsDamage(errors.New("bad magic")) {
		t.Error("bad contents are no damage")
	}
}
