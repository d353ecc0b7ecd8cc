package logs

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

const (
	// Maximum sizes of the queue, in bytes. If the queue is full, the outlet drops lines. A queue of 1 MiB holds about
	// 7,000 step lines. With a larger size, a process with a paused reader needs more memory. With a smaller size, a
	// fast run drops lines if its reader gets no CPU time for a moment.
	progressPending = 1 << 20
	pending         = 2 << 20

	// FlushTime is the longest time for which a process waits for the reader before it exits. It must be shorter than
	// the time after which a supervisor kills the remaining ranks of a run.
	FlushTime = 3 * time.Second
)

// outlet is standard output or standard error of a process that trains. Write appends to a queue and never waits for
// the reader. A goroutine writes the queue to the stream. If the queue is full, the outlet drops lines, progress lines
// first. The output then contains the number of the dropped lines in their place.
type outlet struct {
	w    io.Writer
	json bool // true if each line is a JSON object

	mu       sync.Mutex
	queue    [][]byte
	bytes    int
	writing  bool // true while the goroutine runs
	full     bool // true while progress lines are dropped: since the queue was full, until half of it is written
	lost     int  // number of lines dropped since the last note
	Gone     error
	whenGone func(error)
	empty    chan struct{} // closed when the queue is empty; nil if no caller waits
}

// Unblocked returns outlets for standard output and standard error. If both streams are the same file, one outlet
// serves both, so that the order of lines is preserved. After this call, a closed pipe causes a write error. Without
// it, SIGPIPE would end the process.
func Unblocked(stdout, stderr io.Writer, json bool) (io.Writer, io.Writer) {
	// Catch the signal instead of ignoring it, because child processes would inherit an ignored signal.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	out := &outlet{w: Below(stdout), json: json}
	messages := out
	if !sameFile(Below(stdout), Below(stderr)) {
		messages = &outlet{w: Below(stderr), json: json}
	}
	return NewStream(out), NewStream(messages)
}

func sameFile(a, b io.Writer) bool {
	x, isFile := a.(*os.File)
	y, both := b.(*os.File)
	if !isFile || !both {
		return a == b
	}
	p, err := x.Stat()
	if err != nil {
		return false
	}
	q, err := y.Stat()
	return err == nil && os.SameFile(p, q)
}

// FileOf returns the file below a Stream or an outlet, or nil if there is none.
func FileOf(w io.Writer) *os.File {
	w = Below(w)
	if o, ok := w.(*outlet); ok {
		w = o.w
	}
	f, _ := w.(*os.File)
	return f
}

// Write implements io.Writer. It never waits and never fails.
func (o *outlet) Write(b []byte) (int, error) {
	o.add(b, pending)
	return len(b), nil
}

// progress is a writer for progress lines. An outlet drops these lines first.
type progress struct{ *outlet }

// Write implements io.Writer.
func (p progress) Write(b []byte) (int, error) {
	p.add(b, progressPending)
	return len(b), nil
}

// ProgressOf returns a writer for progress lines to w. If w is an outlet, it drops these lines first.
func ProgressOf(w io.Writer) io.Writer {
	if o := OutletOf(w); o != nil {
		return NewStream(progress{o})
	}
	return w
}

func (o *outlet) add(b []byte, limit int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.Gone != nil {
		return
	}
	o.full = o.full && o.bytes > progressPending/2
	if o.bytes+len(b) > limit || o.full && limit == progressPending {
		o.full = true
		o.lost += max(bytes.Count(b, []byte("\n")), 1)
		return
	}
	o.note()
	o.push(bytes.Clone(b))
}

// message formats a message from the outlet itself, as text or JSON like the other lines.
func (o *outlet) message(format string, args ...any) []byte {
	if !o.json {
		return fmt.Appendf(nil, "hetero-train: "+format+"\n", args...)
	}
	var line bytes.Buffer
	slog.New(slog.NewJSONHandler(&line, nil)).Warn(fmt.Sprintf(format, args...))
	return line.Bytes()
}

// note queues a line that states the number of dropped lines.
func (o *outlet) note() {
	if o.lost > 0 {
		o.push(o.message("%d lines are missing here, because the program that reads this output is too slow; the log file of the run has all lines",
			o.lost))
		o.lost = 0
	}
}

func (o *outlet) push(b []byte) {
	o.queue, o.bytes = append(o.queue, b), o.bytes+len(b)
	if !o.writing {
		o.writing = true
		go o.pass()
	}
}

// pass writes the queue to the stream. It may block forever, but does not prevent the exit of the process.
func (o *outlet) pass() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.queue) > 0 && o.Gone == nil {
		next := o.queue[0]
		o.mu.Unlock()
		_, err := o.w.Write(next)
		o.mu.Lock()
		o.queue, o.bytes = o.queue[1:], o.bytes-len(next)
		if err != nil {
			o.fail(err)
		} else if len(o.queue) == 0 {
			o.note()
		}
	}
	o.writing, o.queue, o.bytes = false, nil, 0
	if o.empty != nil {
		close(o.empty)
		o.empty = nil
	}
}

// fail stops using the stream after an error. The caller must hold o.mu, which fail releases while it reports the
// error.
func (o *outlet) fail(err error) {
	o.Gone = err
	if notice := o.whenGone; notice != nil {
		o.mu.Unlock()
		notice(err)
		o.mu.Lock()
	}
}

// OnGone sets the function that the outlet calls once when the stream has failed.
func (o *outlet) OnGone(notice func(error)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.whenGone = notice
}

// flush waits until all lines are written, but at most for the time limit. It returns the number of unwritten lines.
func (o *outlet) flush(limit time.Duration) int {
	o.mu.Lock()
	if !o.writing {
		o.mu.Unlock()
		return 0
	}
	if o.empty == nil {
		o.empty = make(chan struct{})
	}
	empty := o.empty
	o.mu.Unlock()
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-empty:
		return 0
	case <-late.C:
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	lines := o.lost
	for _, b := range o.queue {
		lines += bytes.Count(b, []byte("\n"))
	}
	return lines
}

// Flushed waits for the readers of both streams before the process exits. If lines of one stream remain unwritten, it
// prints their number to the other stream.
func Flushed(stdout, stderr io.Writer, limit time.Duration) {
	out, messages := OutletOf(stdout), OutletOf(stderr)
	if out == nil || messages == nil {
		return
	}
	var late sync.WaitGroup
	missing := make([]int, 2)
	for i, o := range []*outlet{out, messages} {
		late.Go(func() { missing[i] = o.flush(limit) })
	}
	late.Wait()
	if out != messages && missing[0] > 0 && missing[1] == 0 {
		messages.Write(messages.message("%d lines of standard output are lost, because no program read them within %v after the end of the run; the log file of the run has all lines",
			missing[0], limit))
		messages.flush(limit)
	}
}

// OutletOf returns the outlet of a stream, or nil.
func OutletOf(w io.Writer) *outlet {
	o, _ := Below(w).(*outlet)
	return o
}

// FaultOf returns the first error of writing to a stream or to its outlet. It returns nil if no write failed.
func FaultOf(w io.Writer) error {
	s, ok := w.(*Stream)
	if !ok {
		return nil
	}
	if o := OutletOf(s); o != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.Gone
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fault
}
