package main

import (
	"errors"
	"fmt"

	"github.com/hetero-train/hetero-train/engine/config"
)

// Exit codes. Scripts and schedulers rely on them.
const (
	exitDone          = 0
	exitUnexpected    = 1   // anything without a code of its own
	exitUsage         = 2   // bad flags or configuration; experiment folder in use
	exitData          = 3   // data or checkpoint corrupt or not to be had
	exitDiverged      = 4   // the loss is no longer a number
	exitCommunication = 5   // lost quorum or communication
	exitDevice        = 6   // device failure
	exitIO            = 7   // the final save failed
	exitTerminated    = 75  // SIGTERM, saved
	exitInterrupted   = 130 // SIGINT; saved, unless the error says otherwise
	exitKilled        = 143 // SIGTERM, save failed
)

// codedError is an error that decides how the program exits.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// withCode gives err an exit code; nil stays nil.
func withCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return &codedError{code: code, err: err}
}

func usageError(format string, args ...any) error {
	return withCode(exitUsage, fmt.Errorf(format, args...))
}

// exitCode is the code of the outermost codedError; faults of a configuration are usage errors.
func exitCode(err error) int {
	var coded *codedError
	var faults *config.Error
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &faults):
		return exitUsage
	}
	return exitUnexpected
}
