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
	// Maximum sizes of the queue in bytes; more lines are dropped. The queue holds about 7,000 step lines. A larger
	// queue takes memory while the reader is paused. With a smaller one, a fast run drops lines whenever its reader
	// gets no CPU time for a moment.
	progressPending = 1 << 20
	pending         = 2 << 20

	// flushTime is how long a process waits for the reader before it exits. It is shorter than the time after which a
	// supervisor kills the remaining ranks of a run.
	FlushTime = 3 * time.Second
)

// outlet is standard output or standard error of a process that trains. Write never waits for the reader, because a
// goroutine writes the queue. If the queue is full, lines are dropped, progress lines first. The output contains the
// number of dropped lines at their place.
type outlet struct {
	w    io.Writer
	json bool // each line is a JSON object

	mu       sync.Mutex
	queue    [][]byte
	bytes    int
	writing  bool // the goroutine is running
	full     bool // drop progress lines until half of the queue is written
	lost     int  // lines dropped since the last note
	Gone     error
	whenGone func(error)
	empty    chan struct{} // closed when the queue has been written; nil: no caller waits
}

// Unblocked returns outlets for standard output and standard error. If both are the same file, one outlet serves both
// and keeps the order of lines. After this call, a closed pipe causes a write error instead of SIGPIPE, which would end
// the process.
func Unblocked(stdout, stderr io.Writer, json bool) (io.Writer, io.Writer) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // caught, not ignored: an ignored signal would be ignored in child processes too
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

// FileOf returns the file of a writer of this process; nil: it is not a file.
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

// progress is a writer for lines that an outlet may drop before other lines.
type progress struct{ *outlet }

// Write implements io.Writer.
func (p progress) Write(b []byte) (int, error) {
	p.add(b, progressPending)
	return len(b), nil
}

// ProgressOf returns a writer to w for lines that may be dropped before other lines.
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

// message formats a line of the outlet itself, in the format of the stream.
func (o *outlet) message(format string, args ...any) []byte {
	if !o.json {
		return fmt.Appendf(nil, "hetero-train: "+format+"\n", args...)
	}
	var line bytes.Buffer
	slog.New(slog.NewJSONHandler(&line, nil)).Warn(fmt.Sprintf(format, args...))
	return line.Bytes()
}

// note queues the number of lines that are missing at this place.
func (o *outlet) note() {
	if o.lost > 0 {
		o.push(o.message("%d lines are missing here, because the reader was too slow; the log file of the run has all lines", o.lost))
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

// pass writes the queue. It may block for ever; the process can exit nevertheless.
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

// fail stops the use of the stream. The caller holds o.mu, which fail releases while it reports the failure.
func (o *outlet) fail(err error) {
	o.Gone = err
	if say := o.whenGone; say != nil {
		o.mu.Unlock()
		say(err)
		o.mu.Lock()
	}
}

// OnGone sets the function that reports a closed stream.
func (o *outlet) OnGone(say func(error)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.whenGone = say
}

// flush waits at most limit until all lines are written. It returns the number of unwritten lines.
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

// Flushed waits for the readers of both streams before the process exits. If lines of one stream are unwritten, the
// other stream reports their number.
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
		messages.Write(messages.message("%d lines of standard output are lost, because they were not read within %v after the end; the log file of the run has all lines", missing[0], limit))
		messages.flush(limit)
	}
}
