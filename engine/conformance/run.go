package conformance

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"
)

// Status is the result of a check.
type Status string

// The possible results.
const (
	Passed  Status = "passed"
	Failed  Status = "failed"
	Skipped Status = "skipped" // the output contains the reason
)

// Result is the result of a check and of its sub-checks.
type Result struct {
	Name    string    `json:"name"` // name without the names of enclosing checks
	Status  Status    `json:"status"`
	Seconds float64   `json:"seconds"`
	Output  []string  `json:"output,omitempty"` // messages of the check
	Within  []*Result `json:"within,omitempty"`
}

// Count returns the numbers of checks without sub-checks that passed, failed and were skipped. A check with
// sub-checks counts as failed if it failed by itself.
func (r *Result) Count() (passed, failed, skipped int) {
	own := r.Status == Failed
	for _, sub := range r.Within {
		p, f, s := sub.Count()
		passed, failed, skipped = passed+p, failed+f, skipped+s
		own = own && sub.Status != Failed
	}
	switch {
	case own:
		failed++
	case len(r.Within) > 0:
	case r.Status == Skipped:
		skipped++
	default:
		passed++
	}
	return passed, failed, skipped
}

// Options determines which checks run and who receives the results.
type Options struct {
	// Context limits the time of all checks. After it has ended, no check starts, and running checks have one second
	// to end. nil means no limit.
	Context context.Context
	// Match contains one regular expression for each depth of names, as in `go test -run`. A check runs if the
	// expressions for its own depth and all outer depths match. Deeper checks need no match. See ParseMatch.
	Match []*regexp.Regexp
	// Short skips checks that call Long.
	Short bool
	// Limit is the time limit of a check, without the time of its sub-checks. 0 means no limit, even after Context
	// has ended.
	Limit time.Duration
	// Done is called for each check that has ended, after its sub-checks, always by one goroutine. path contains the
	// names of the enclosing checks and the check itself.
	Done func(path []string, r *Result)
}

// ParseMatch parses regular expressions separated by slashes, one for each depth.
func ParseMatch(pattern string) ([]*regexp.Regexp, error) {
	if pattern == "" {
		return nil, nil
	}
	var list []*regexp.Regexp
	for part := range strings.SplitSeq(pattern, "/") {
		e, err := regexp.Compile(part)
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, nil
}

// matches reports whether the check with this path is selected. A slash within a name also separates names.
func (o Options) matches(path []string) bool {
	for i, name := range strings.Split(strings.Join(path, "/"), "/") {
		if i < len(o.Match) && !o.Match[i].MatchString(name) {
			return false
		}
	}
	return true
}

// Run runs a check with its sub-checks. It returns nil if Options.Match excludes the check.
func Run(name string, f func(T), o Options) *Result {
	r := &runner{Options: o}
	n := r.run(nil, name, f)
	if n == nil {
		return nil
	}
	return n.result
}

// runner is the state that all checks of a Run share.
type runner struct {
	Options
	stuck atomic.Bool // a check hangs, so no further check starts
}

// run runs a check. parent is the enclosing check, or nil. run returns nil if the check is excluded.
func (r *runner) run(parent *node, name string, f func(T)) *node {
	n := &node{runner: r, parent: parent, result: &Result{Name: name}}
	if parent != nil {
		n.path = append(n.path, parent.path...)
	}
	if n.path = append(n.path, name); r.stuck.Load() || r.Context != nil && r.Context.Err() != nil ||
		!r.matches(n.path) {
		return nil
	}
	if parent != nil {
		parent.within.Add(1)
		defer parent.within.Add(-1)
		parent.mu.Lock()
		parent.result.Within = append(parent.result.Within, n.result)
		parent.mu.Unlock()
	}
	started, ended := time.Now(), make(chan struct{})
	go n.body(f, ended)
	n.await(ended)
	n.conclude(time.Since(started))
	return n
}

// body is the function of a check's goroutine.
func (n *node) body(f func(T), ended chan<- struct{}) {
	defer close(ended)
	defer n.cleanUp()
	defer n.catch()
	f(n)
}

// catch reports a panic as a failure.
func (n *node) catch() {
	if reason := recover(); reason != nil {
		n.Errorf("panic: %v\n%s", reason, debug.Stack())
	}
}

// cleanUp runs the remaining clean-ups in reverse order. It continues after a clean-up that panics or calls FailNow.
func (n *node) cleanUp() {
	n.mu.Lock()
	last := len(n.cleanups) - 1
	if last < 0 {
		n.mu.Unlock()
		return
	}
	f := n.cleanups[last]
	n.cleanups = n.cleanups[:last]
	n.mu.Unlock()
	defer n.cleanUp()
	defer n.catch()
	f()
}

// lastSecond is the time that a running check has after Options.Context has ended. It is enough for a check that is
// about to end.
const lastSecond = time.Second

// await waits for the end of a check. The time of sub-checks does not count against its limit, because they have
// their own limits.
func (n *node) await(ended <-chan struct{}) {
	if n.Limit <= 0 {
		<-ended
		return
	}
	var stopped <-chan struct{}
	if n.Context != nil {
		stopped = n.Context.Done()
	}
	late := fmt.Sprintf("the check did not end within %v", n.Limit)
	const ticks = 100 // number of ticks per limit
	tick := time.NewTicker(max(n.Limit/ticks, time.Millisecond))
	defer tick.Stop()
	for busy := 0; busy <= ticks; {
		select {
		case <-ended:
			return
		case <-stopped:
			limit := min(n.Limit, lastSecond)
			late = fmt.Sprintf(
				"the time limit of all checks (%v) was reached, and this check did not end within another %v",
				context.Cause(n.Context), limit)
			tick.Reset(max(limit/ticks, time.Millisecond))
			stopped, busy = nil, 0
		case <-tick.C:
			if n.within.Load() == 0 {
				busy++
			}
		}
		if n.stuck.Load() && n.within.Load() == 0 {
			return // a sub-check hangs and was reported
		}
	}
	stacks := make([]byte, 1<<20)
	n.Errorf("%s; all goroutines:\n%s", late, stacks[:runtime.Stack(stacks, true)])
	n.stuck.Store(true)
}

// conclude sets the final result and passes it to Options.Done.
func (n *node) conclude(took time.Duration) {
	n.mu.Lock()
	n.result.Seconds = took.Seconds()
	switch {
	case n.failed:
		n.result.Status = Failed
	case n.skipped:
		n.result.Status = Skipped
	default:
		n.result.Status = Passed
	}
	n.over = true
	n.mu.Unlock()
	if n.Done != nil {
		n.Done(n.path, n.result)
	}
}
