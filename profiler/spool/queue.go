package spool

import (
	"sync"
	"sync/atomic"

	"github.com/hetero-train/hetero-train/engine/diskwatch"
)

// A Queue is full if its waiting jobs have more than MostQueued bytes. The log lines and decisions of one minute have
// about 1 MB. With a larger value, a run needs more memory while its disk does not answer.
const MostQueued = 16 << 20

// Queue performs the disk operations of a run one after the other, on its own goroutine. The goroutine that trains
// therefore never waits for the disk, even if the file system hangs. All methods are safe for concurrent use. With a
// nil Queue, Do performs each job before it returns.
//
// Do accepts every job. The caller must stop adding records while the queue is Full.
type Queue struct {
	watch *diskwatch.Watch
	over  atomic.Int32 // number of Spools with more than MostBytes of records, because the disk does not answer

	mu     sync.Mutex
	more   sync.Cond // signals that a job was added, or that Close was called
	jobs   []job
	bytes  int  // total of the waiting jobs
	closed bool // Close was called
	done   bool // run has ended and performs no more jobs
	ended  chan struct{}

	file string // file of the current job; only run and Progress (called by the job) use this field and the next one
	end  func() // ends the operation that watch holds
}

type job struct {
	file  string
	bytes int
	do    func()
}

// NewQueue returns a running queue. watch, which may be nil, observes each operation. The caller must call Close.
func NewQueue(watch *diskwatch.Watch) *Queue {
	q := &Queue{watch: watch, ended: make(chan struct{})}
	q.more.L = &q.mu
	go q.run()
	return q
}

// Do adds the function do as a job that writes to a file. The parameter bytes is the size of the memory that the job
// uses. After Close, Do performs the job itself. A job may call Do: Close then also performs the job that was added.
func (q *Queue) Do(file string, bytes int, do func()) {
	if q == nil {
		do()
		return
	}
	q.mu.Lock()
	if q.done {
		q.mu.Unlock()
		do()
		return
	}
	q.jobs, q.bytes = append(q.jobs, job{file, bytes, do}), q.bytes+bytes
	q.mu.Unlock()
	q.more.Signal()
}

// run performs the jobs.
func (q *Queue) run() {
	defer close(q.ended)
	q.mu.Lock()
	defer q.mu.Unlock()
	var taken []job
	for {
		for len(q.jobs) == 0 && !q.closed {
			q.more.Wait()
		}
		if len(q.jobs) == 0 {
			q.done = true
			return
		}
		taken, q.jobs = q.jobs, taken[:0]
		for i, j := range taken {
			q.mu.Unlock()
			q.file, q.end = j.file, q.watch.Begin(j.file)
			j.do()
			q.end()
			q.mu.Lock()
			q.bytes -= j.bytes
			taken[i] = job{}
		}
	}
}

// Progress records that the disk has performed a part of a long job. Only a job of the queue may call it. Progress
// resets the age of the operation to 0, so that a slow disk is not mistaken for a disk that does not answer.
func (q *Queue) Progress() {
	if q == nil || q.end == nil {
		return
	}
	q.end()
	q.end = q.watch.Begin(q.file)
}

// Full reports whether the memory for waiting records is full. If so, the caller must wait before it adds more records.
func (q *Queue) Full() bool {
	return q != nil && (q.over.Load() > 0 || q.Waiting() > MostQueued)
}

// Waiting returns the number of bytes of the waiting jobs.
func (q *Queue) Waiting() int {
	if q == nil {
		return 0
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.bytes
}

// Written returns a channel that is closed when all jobs so far are done.
func (q *Queue) Written() <-chan struct{} {
	done := make(chan struct{})
	q.Do("", 0, func() { close(done) })
	return done
}

// Close performs the waiting jobs and ends the queue. A second Close only waits.
func (q *Queue) Close() error {
	if q == nil {
		return nil
	}
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.more.Signal()
	<-q.ended
	return nil
}
