package supervisor

import (
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
)

const (
	tailBytes = 4096
	tailLines = 20
)

// tail is a writer that keeps only the end of the written bytes.
type tail struct {
	mu   sync.Mutex
	kept []byte
	cut  bool
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - tailBytes; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
		t.cut = true
	}
	return len(p), nil
}

// String returns the last complete lines.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimRight(string(t.kept), "\n"), "\n")
	if t.cut && len(lines) > 1 {
		lines = lines[1:] // its beginning was dropped
	}
	return strings.Join(lines[max(len(lines)-tailLines, 0):], "\n")
}

// sink writes to a writer that several streams share. If the writer fails, sink logs the failure once and drops the
// remaining output, so that the rank can continue.
type sink struct {
	rank int
	log  *slog.Logger

	mu     sync.Mutex
	w      io.Writer
	failed bool
}

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed {
		return len(p), nil
	}
	if _, err := s.w.Write(p); err != nil {
		s.failed = true
		s.log.Warn("the output of a rank cannot be written: later lines are lost", "rank", s.rank, "error", err)
	}
	return len(p), nil
}

// streams returns writers for a rank's standard output and standard error, and the tail of standard error. If a writer
// is a file, the rank writes to the file directly.
func (o *Options) streams(local int) (stdout, stderr io.Writer, end *tail) {
	end = &tail{}
	rank := o.FirstRank + local
	if local == 0 {
		stdout, stderr = o.Stdout, o.Stderr
	} else if o.Output != nil {
		stdout = o.Output(rank)
		stderr = stdout
	}
	same := &sink{rank: rank, log: o.Log, w: stdout}
	if stdout != nil && !isFile(stdout) {
		stdout = same
	}
	switch {
	case stderr == nil:
		return stdout, end, end
	case local == 0 && isFile(stderr):
		return stdout, stderr, end
	case local == 0:
		return stdout, io.MultiWriter(end, &sink{rank: rank, log: o.Log, w: stderr}), end
	}
	return stdout, io.MultiWriter(end, same), end
}

func isFile(w io.Writer) bool {
	_, ok := w.(*os.File)
	return ok
}
