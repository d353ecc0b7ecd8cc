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
	// A pending queue beyond these sizes in bytes loses lines. About 7,000 step lines fit; larger values take memory while the reader is paused,
	// smaller ones lose lines of a fast run on a machine whose reader gets no CPU time for a moment.
	progressPending = 1 << 20
	pending         = 2 << 20

	// flushTime is how long a process waits for the reader before it exits. It is below the time after which a supervisor kills a rank
	// whose neighbours have ended.
	FlushTime = 3 * time.Second
)

// outlet is standard output or standard error of a process that trains. Write never waits for the reader: a goroutine passes the queued
// bytes on. While the queue is full lines are dropped and counted, progress lines first, and the reader sees the count where they are missing.
type outlet struct {
	w    io.Writer
	json bool // each line is a JSON object

	mu       sync.Mutex
	queue    [][]byte
	bytes    int
	writing  bool // the goroutine is running
	full     bool // progress lines are dropped until half of the queue is written
	lost     int  // lines dropped since the last note
	Gone     error
	whenGone func(error)
	empty    chan struct{} // closed when the queue has been written; nil: no caller waits
}

// Unblocked returns outlets for standard output and error. One outlet serves both where they are the same file, so that their lines keep their order.
// From here on a reader that leaves causes a write error instead of SIGPIPE, which would end the process.
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

// FileOf is the file behind a writer of this process; nil: there is none.
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

// progress is an outlet's end for lines that may be dropped before others.
type progress struct{ *outlet }

// Write implements io.Writer.
func (p progress) Write(b []byte) (int, error) {
	p.add(b, progressPending)
	return len(b), nil
}

// ProgressOf returns w for lines that may be dropped before others.
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

// message is a line of the outlet's own, in the format of the stream.
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
		o.push(o.message("%d lines are missing here: the reader was too slow; the log file of the run has them", o.lost))
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

// pass writes the queue. It may wait for ever: the process ends nevertheless.
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

// fail gives the stream up. It needs o.mu, which it releases while it says so.
func (o *outlet) fail(err error) {
	o.Gone = err
	if say := o.whenGone; say != nil {
		o.mu.Unlock()
		say(err)
		o.mu.Lock()
	}
}

// OnGone sets the function that reports a reader that has left.
func (o *outlet) OnGone(say func(error)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.whenGone = say
}

// flush waits until all is written, for at most limit. It returns how many lines are not.
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

// Flushed waits for the readers of both streams before the process exits. The stream that is read says what the other one has not shown.
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
		messages.Write(messages.message("%d lines of standard output were not read within %v after the end; the log file of the run has them", missing[0], limit))
		messages.flush(limit)
	}
}
