package supervisor

import (
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// CauseVariable is the environment variable with the file descriptor to which [ReportCause] writes.
const CauseVariable = "HETERO_CAUSE_FD"

// mostCauseBytes is less than the capacity of a pipe, so that a rank never waits for the supervisor.
const mostCauseBytes = 32 << 10

// ReportCause sends the cause of this rank's failure to its supervisor, which puts it into RankError.Cause. The
// parameter environment has the form of os.Environ. If environment names no pipe, or writing to the pipe fails,
// ReportCause returns false, and the caller must print the cause. Call ReportCause at most once per process, at its
// end. It sends at most 32 KiB of text.
func ReportCause(environment []string, text string) bool {
	fd, ok := causePipe(environment)
	if !ok {
		return false
	}
	file := os.NewFile(uintptr(fd), "cause")
	_, err := file.WriteString(text[:min(len(text), mostCauseBytes)])
	return file.Close() == nil && err == nil
}

// mostAccountBytes and mostCauseBytes together are less than the capacity of a pipe.
const mostAccountBytes = 4 << 10

// accountEnd marks the end of the memory account of a rank, which comes before the cause in the pipe.
const accountEnd = "\x00"

// ReportMemory sends a description of this rank's memory to its supervisor. If the kernel kills the rank because memory
// ran out, the error contains the description. The parameter environment has the form of os.Environ. Without a
// supervisor, ReportMemory does nothing. Call it at most once per process, before ReportCause. It sends at most 4 KiB
// of text.
func ReportMemory(environment []string, text string) error {
	fd, ok := causePipe(environment)
	if !ok {
		return nil
	}
	text = strings.ReplaceAll(text, accountEnd, "")
	return writeTo(fd, text[:min(len(text), mostAccountBytes)]+accountEnd)
}

// causePipe returns the file descriptor of the pipe to the supervisor.
func causePipe(environment []string) (fd int, ok bool) {
	for _, entry := range environment {
		if number, ok := strings.CutPrefix(entry, CauseVariable+"="); ok {
			fd, err := strconv.ParseUint(number, 10, 16)
			return int(fd), err == nil && fd >= firstExtraFile
		}
	}
	return 0, false
}

// readCause reads the memory account and the cause that an ended rank has written. The read has a time limit, because a
// process that the rank left behind may hold the pipe open.
func readCause(file *os.File) (account, cause string) {
	defer file.Close()
	if err := file.SetReadDeadline(time.Now().Add(drainTime)); err != nil {
		return "", ""
	}
	// the text that arrived before the time limit
	text, _ := io.ReadAll(io.LimitReader(file, mostAccountBytes+mostCauseBytes))
	account, cause, found := strings.Cut(string(text), accountEnd)
	if !found {
		account, cause = "", account
	}
	return strings.TrimSpace(account), strings.TrimSpace(cause)
}

// known reports whether another rank has failed with the same exit code and cause.
func (w *watch) known(failure *RankError) bool {
	return slices.ContainsFunc(w.failures, func(e *RankError) bool {
		return e.Code == failure.Code && e.Cause == failure.Cause
	})
}

// tellOthers logs each cause that differs from the cause of the result, once. It skips a rank that lost another rank
// and only repeats the cause of the result.
func (w *watch) tellOthers(result error) {
	told := map[string]bool{"": true}
	var failed RankError
	if found := new(*RankError); errors.As(result, found) {
		failed = **found
		told[failed.Cause] = true
	}
	for _, e := range w.failures {
		repeats := failed.Cause != "" && slices.Contains(w.options.Secondary, e.Code) &&
			strings.HasSuffix(e.Cause, failed.Cause)
		if !told[e.Cause] && !repeats {
			told[e.Cause] = true
			w.options.Log.Error("rank failed", "rank", e.Rank, "reason", e)
		}
	}
}

// isCommon reports whether there are at least two ranks, and all failed with the exit code and cause of e.
func (w *watch) isCommon(e *RankError) bool {
	other := func(f *RankError) bool { return f.Code != e.Code || f.Cause != e.Cause }
	return e.Cause != "" && len(w.failures) > 1 && len(w.failures) == len(w.processes) &&
		!slices.ContainsFunc(w.failures, other)
}
