package supervisor

import (
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// CauseVariable is the environment variable with the file descriptor to which [ReportCause] writes.
const CauseVariable = "HETERO_CAUSE_FD"

// mostCauseBytes is less than a pipe holds, so that a rank never waits for the supervisor.
const mostCauseBytes = 32 << 10

// ReportCause sends the cause of this rank's failure to its supervisor, which puts it into RankError.Cause. environment
// has the form of os.Environ. ReportCause returns false if environment names no pipe or the pipe cannot be written. The
// caller must then print the cause. Call ReportCause at most once per process, at its end. It sends at most 32 KiB of
// text.
func ReportCause(environment []string, text string) bool {
	for _, entry := range environment {
		number, ok := strings.CutPrefix(entry, CauseVariable+"=")
		if !ok {
			continue
		}
		fd, err := strconv.ParseUint(number, 10, 16)
		if err != nil || fd < firstExtraFile {
			return false
		}
		file := os.NewFile(uintptr(fd), "cause")
		_, err = file.WriteString(text[:min(len(text), mostCauseBytes)])
		return file.Close() == nil && err == nil
	}
	return false
}

// readCause reads the cause that an ended rank has written. The read has a time limit, because a process that the rank
// left behind may hold the pipe open.
func readCause(file *os.File) string {
	defer file.Close()
	if err := file.SetReadDeadline(time.Now().Add(drainTime)); err != nil {
		return ""
	}
	text, _ := io.ReadAll(io.LimitReader(file, mostCauseBytes)) // the text that arrived before the time limit
	return strings.TrimSpace(string(text))
}
