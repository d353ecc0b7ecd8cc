package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Run starts the ranks and returns when all have ended. It returns nil if every exit code was 0, and otherwise a
// *RankError for the rank that ended the run. It returns another error if a rank could not be started. When ctx ends,
// Run sends SIGTERM to the ranks and, after KillAfter, SIGKILL. The error then also wraps the cause of ctx. SIGKILL
// does not end a process that is blocked in the kernel, for example because a file system does not answer. In this
// case, Run returns a *RankError after LeaveAfter. On Windows, Run returns errors.ErrUnsupported.
func Run(ctx context.Context, options Options) error {
	if err := options.complete(); err != nil {
		return err
	}
	if err := supported(); err != nil {
		return err
	}
	w := &watch{options: options, memory: readMemoryKills("/"), exits: make(chan *process, options.Ranks),
		beats: make(chan struct{}, 1)}
	if err := w.startAll(); err != nil {
		return err
	}
	defer w.startThread.end()
	w.loop(ctx)
	err := w.verdict()
	w.tellOthers(err)
	if w.cancelled != nil {
		err = errors.Join(fmt.Errorf("ranks were stopped: %w", w.cancelled), err)
	}
	return err
}

// watch is the state of one run.
type watch struct {
	options     Options
	processes   []*process
	startThread *thread
	memory      memoryKills // counts of memory kills when the ranks started
	exits       chan *process
	beats       chan struct{} // heartbeats of rank 0's lifeline

	timer      *time.Timer    // expires at the next step; nil: no step is planned
	step       step           // the step to take when the timer expires
	after      time.Duration  // duration of the timer
	since      time.Time      // time at which the first step was planned
	interrupts int            // number of forwarded SIGINTs
	stop       syscall.Signal // first forwarded signal that ends ranks; 0: none
	stopped    time.Time      // time at which stop was forwarded
	again      bool           // a second signal that ends ranks has shortened the time limit
	gaveUp     bool           // a rank does not end after SIGKILL
	cancelled  error          // cause of the end of the context

	failures  []*RankError // failed ranks in the order of their ends, without those that stopped as requested
	first     *RankError   // first failure that is not a consequence of another failure
	orderly   *RankError
	secondary *RankError
}

// step is a measure against ranks that do not end.
type step int

const (
	stepNone step = iota
	stepTerminate
	stepKill
	stepGiveUp
)

// startAll starts all ranks. If a rank cannot be started, startAll kills the ranks that it has started.
func (w *watch) startAll() error {
	o := &w.options
	port := o.MasterPort
	var files rankFiles // files of rank 0
	var err error
	if port == 0 {
		if files.listener, port, err = openPort(); err != nil {
			return err
		}
		defer files.listener.Close() // only rank 0 may keep the port open
	}
	if o.FirstRank == 0 {
		if files.lifeline, err = openLifeline(w.beats); err != nil {
			return err
		}
		defer files.lifeline.Close()
	}
	w.startThread = newThread()
	w.startThread.do(func() {
		for local := range o.Ranks {
			var p *process
			if p, err = o.start(local, port, files); err != nil {
				return
			}
			files = rankFiles{}
			w.processes = append(w.processes, p)
			o.Log.Debug("rank started", "rank", p.rank, "pid", p.command.Process.Pid)
		}
	})
	for _, p := range w.processes {
		go func() {
			p.wait()
			w.exits <- p
		}()
	}
	if err != nil {
		for _, p := range w.processes {
			p.kill()
		}
		for range w.processes {
			<-w.exits
		}
		w.startThread.end()
	}
	return err
}

// loop handles events until every rank has ended, or until it gives up on a rank.
func (w *watch) loop(ctx context.Context) {
	done := ctx.Done()
	pulse := time.NewTicker(pulseEvery)
	defer pulse.Stop()
	last := time.Now()
	for left := len(w.processes); left > 0 && !w.gaveUp; {
		var due <-chan time.Time
		if w.timer != nil {
			due = w.timer.C
		}
		select {
		case p := <-w.exits:
			left--
			w.exited(p)
		case signal, ok := <-w.options.Signals:
			if !ok {
				w.options.Signals = nil
				continue
			}
			w.forward(signal)
		case <-done:
			done = nil
			w.cancelled = context.Cause(ctx)
			w.take(stepTerminate)
		case now := <-pulse.C:
			if now.Sub(last) > sleptFor { // the machine or the whole job was paused: restart the time limits
				w.postpone()
			}
			last = now
			continue
		case <-w.beats:
			if time.Since(w.since) < mostHeld && w.interrupts < 2 {
				w.postpone()
			}
		case <-due:
			if time.Since(last) > sleptFor { // a pause that the pulse has not detected yet
				last = time.Now()
				w.postpone()
				continue
			}
			w.take(w.step)
		}
	}
	if w.timer != nil {
		w.timer.Stop()
	}
}

// exited records how a rank ended.
func (w *watch) exited(p *process) {
	p.ended = true
	failure := p.failure()
	o := &w.options
	if !p.told { // the rank ended by itself, so the other ranks must end, too
		defer func() {
			if w.step == stepNone {
				w.plan(stepTerminate, o.Grace)
			}
		}()
	}
	switch {
	case failure == nil:
		o.Log.Debug("rank ended", "rank", p.rank)
		return
	case p.told:
		return
	case slices.Contains(o.Orderly, failure.Code), slices.Contains(stopSignals, failure.Signal):
		// a stop signal kills a rank that is still loading the program
		w.orderly = firstOf(w.orderly, failure)
		o.Log.Debug("rank stopped as requested", "rank", p.rank, "code", failure.Code)
		return
	case slices.Contains(o.Secondary, failure.Code):
		w.secondary = firstOf(w.secondary, failure)
	default:
		if failure.Signal == syscall.SIGKILL {
			if failure.Reason = w.memory.reason(readMemoryKills("/")); failure.Reason != "" {
				if more := figures("/", p.account); more != "" {
					failure.Reason += ": " + more
				}
			}
		}
		w.first = firstOf(w.first, failure)
	}
	// If a rank reported a cause, do not log it here: the result of Run contains the cause, or tellOthers logs it.
	switch {
	case failure.Cause == "":
		o.Log.Error("rank failed", "rank", p.rank, "reason", failure)
	case w.known(failure), slices.Contains(o.Secondary, failure.Code):
		o.Log.Debug("rank failed for the same reason as another, or because of it", "rank", p.rank, "reason", failure)
	default:
		o.Log.Error("rank failed", "rank", p.rank, "reason", failure.end())
	}
	w.failures = append(w.failures, failure)
}

func firstOf(a, b *RankError) *RankError {
	if a != nil {
		return a
	}
	return b
}

// forward forwards a signal of the user.
func (w *watch) forward(signal os.Signal) {
	number, ok := signal.(syscall.Signal)
	if !ok {
		return
	}
	for _, p := range w.processes {
		if !p.ended {
			p.signal(number)
		}
	}
	if number == syscall.SIGINT {
		if w.interrupts++; w.interrupts == 2 { // end immediately
			w.plan(stepKill, w.options.KillAfter)
		}
	}
	if !slices.Contains(stopSignals, number) {
		return
	}
	switch {
	case w.stop == 0:
		w.stop, w.stopped = number, time.Now()
	case time.Since(w.stopped) <= oneStop: // count both as one signal
	case !w.again && (w.step == stepKill || w.step == stepGiveUp):
		// Shorten the time limit, which a rank that is saving still extends. Do this only once, so that further signals
		// do not restart it.
		w.again = true
		w.plan(w.step, min(w.after, w.options.KillAfter))
	}
	if w.step == stepNone {
		w.plan(stepKill, w.options.Grace+w.options.KillAfter) // heartbeats of a saving rank 0 restart it
	}
}

// oneStop is the time within which two signals count as one.
const oneStop = 2 * time.Second

// stopSignals ask a rank to end.
var stopSignals = []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}

// plan schedules the next step.
func (w *watch) plan(next step, after time.Duration) {
	if w.step == stepNone {
		w.since = time.Now()
	}
	w.step, w.after = next, after
	if w.timer != nil {
		w.timer.Stop()
	}
	w.timer = time.NewTimer(after)
}

// postpone restarts the time limit of the scheduled step.
func (w *watch) postpone() {
	if w.timer != nil {
		w.plan(w.step, w.after)
	}
}

// The supervisor reads the clock at the interval pulseEvery. A gap of more than sleptFor indicates that its process or
// the machine was paused.
const (
	pulseEvery = 250 * time.Millisecond
	sleptFor   = 2 * time.Second
)

// take applies a step to the ranks that have not ended.
func (w *watch) take(now step) {
	for _, p := range w.processes {
		if p.ended {
			continue
		}
		if p.doing == "" {
			p.doing = p.state()
		}
		p.told = true
		switch now {
		case stepTerminate:
			p.signal(syscall.SIGTERM)
		case stepKill:
			w.options.Log.Warn("rank did not exit: killing it", "rank", p.rank, "pid", p.command.Process.Pid, "state",
				p.doing)
			p.killed = true
			p.kill()
		case stepGiveUp:
			p.doing, p.immortal, w.gaveUp = p.state(), true, true
			w.options.Log.Error("rank did not exit after SIGKILL: leaving it behind", "rank", p.rank, "pid",
				p.command.Process.Pid, "state", p.doing)
		}
	}
	switch {
	case now == stepTerminate:
		w.plan(stepKill, w.options.KillAfter)
	case now == stepKill && w.again:
		w.plan(stepGiveUp, w.options.KillAfter)
	case now == stepKill:
		w.plan(stepGiveUp, w.options.LeaveAfter)
	}
}

// verdict returns the failure that caused the other failures.
func (w *watch) verdict() error {
	saver := slices.IndexFunc(w.processes, func(p *process) bool { return p.rank == 0 && p.killed })
	switch {
	case w.first != nil:
		w.first.Common = w.isCommon(w.first)
		return w.first
	case w.stop != 0 && saver >= 0: // rank 0 alone saves, so the other ranks' orderly stop is no success
		return w.hung(w.processes[saver])
	case w.orderly != nil:
		return w.orderly
	case w.cancelled != nil:
		return asError(w.secondary)
	}
	// All failed ranks report that they lost a rank. The cause is therefore a rank that had to be stopped, preferably
	// one that ignored SIGTERM.
	hung := slices.IndexFunc(w.processes, func(p *process) bool { return p.killed })
	if hung < 0 {
		hung = slices.IndexFunc(w.processes, func(p *process) bool { return p.told })
	}
	if hung < 0 {
		return asError(w.secondary)
	}
	return w.hung(w.processes[hung])
}

// hung returns the failure of a rank that did not end.
func (w *watch) hung(p *process) *RankError {
	e := &RankError{Rank: p.rank, PID: p.command.Process.Pid, Code: -1, Hung: true, Stop: w.stop, Tail: p.end.String(),
		Reason: fmt.Sprintf("%s, and did not exit within %v after the stop", p.doing, w.options.Grace)}
	if w.secondary != nil {
		e.Code, e.Reason = w.secondary.Code,
			fmt.Sprintf("%s, and did not exit within %v after rank %d had lost the connection to another rank", p.doing,
				w.options.Grace, w.secondary.Rank)
	}
	if p.immortal {
		e.Reason = fmt.Sprintf("%s, and did not exit within %v after SIGKILL; the kernel ends the process when the call that blocks it returns, and until then the process holds its memory and the lock of the run",
			p.doing, w.after)
	}
	return e
}

// asError prevents a nil pointer from becoming a non-nil error.
func asError(e *RankError) error {
	if e == nil {
		return nil
	}
	return e
}

// thread is an OS thread that runs functions. Children with a parent-death signal die with the thread that started
// them, not with the process.
type thread struct {
	work chan func()
	done sync.WaitGroup
}

func newThread() *thread {
	t := &thread{work: make(chan func())}
	t.done.Go(func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for f := range t.work {
			f()
		}
	})
	return t
}

// do runs a function on the thread and waits for it.
func (t *thread) do(f func()) {
	finished := make(chan struct{})
	t.work <- func() {
		defer close(finished)
		f()
	}
	<-finished
}

// end ends the thread.
func (t *thread) end() {
	close(t.work)
	t.done.Wait()
}
