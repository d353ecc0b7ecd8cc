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

// Status is what became of a check.
type Status string

// The statuses.
const (
	Passed  Status = "passed"
	Failed  Status = "failed"
	Skipped Status = "skipped" // it said why
)

// Result is a check and those within it.
type Result struct {
	Name    string    `json:"name"` // without those of the checks around it
	Status  Status    `json:"status"`
	Seconds float64   `json:"seconds"`
	Output  []string  `json:"output,omitempty"` // what it said, a message each
	Within  []*Result `json:"within,omitempty"`
}

// Count is how many checks that hold no others passed, failed and were skipped. One that itself fails, beside those within it, counts.
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

// Options say what runs and who is told.
type Options struct {
	// Context, once it has ended, lets no more checks begin, and those under way go on for a second at most; nil never ends.
	Context context.Context
	// Match are regular expressions for names at each depth, as `go test -run` has them: a check runs if every one that there is for its
	// depth matches. See ParseMatch.
	Match []*regexp.Regexp
	// Short leaves out what calls Long.
	Short bool
	// Limit is how long a check without others within it may take; 0 = for ever, also when Context has ended.
	Limit time.Duration
	// Done is told of each check that has ended, those within it before. path are the names around it, its own last. It is called by one goroutine.
	Done func(path []string, r *Result)
}

// ParseMatch reads expressions that are separated by slashes, one for each depth.
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

// matches reports whether a check of this path runs. A slash within a name separates names, too.
func (o Options) matches(path []string) bool {
	for i, name := range strings.Split(strings.Join(path, "/"), "/") {
		if i < len(o.Match) && !o.Match[i].MatchString(name) {
			return false
		}
	}
	return true
}

// Run runs a check with all within it; nil if Options.Match leaves it out.
func Run(name string, f func(T), o Options) *Result {
	r := &runner{Options: o}
	n := r.run(nil, name, f)
	if n == nil {
		return nil
	}
	return n.result
}

// runner is what all checks of a Run share.
type runner struct {
	Options
	stuck atomic.Bool // a check did not end: nothing more is begun
}

// run runs a check within parent, nil for the outermost; nil if it is left out.
func (r *runner) run(parent *node, name string, f func(T)) *node {
	n := &node{runner: r, parent: parent, result: &Result{Name: name}}
	if parent != nil {
		n.path = append(n.path, parent.path...)
	}
	if n.path = append(n.path, name); r.stuck.Load() || r.Context != nil && r.Context.Err() != nil || !r.matches(n.path) {
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

// body is the goroutine of a check.
func (n *node) body(f func(T), ended chan<- struct{}) {
	defer close(ended)
	defer n.cleanUp()
	defer n.catch()
	f(n)
}

// catch makes a panic a failure.
func (n *node) catch() {
	if reason := recover(); reason != nil {
		n.Errorf("panic: %v\n%s", reason, debug.Stack())
	}
}

// cleanUp runs what was left to do, last to first, also behind one that panics or calls FailNow.
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

// lastSecond is what a check under way has left when Options.Context has ended: enough for one that is about to end.
const lastSecond = time.Second

// await waits for the end of a check. What checks within it take does not count against its limit: they have their own.
func (n *node) await(ended <-chan struct{}) {
	if n.Limit <= 0 {
		<-ended
		return
	}
	var stopped <-chan struct{}
	if n.Context != nil {
		stopped = n.Context.Done()
	}
	late := fmt.Sprintf("it did not end within %v", n.Limit)
	const ticks = 100 // of a limit
	tick := time.NewTicker(max(n.Limit/ticks, time.Millisecond))
	defer tick.Stop()
	for busy := 0; busy <= ticks; {
		select {
		case <-ended:
			return
		case <-stopped:
			limit := min(n.Limit, lastSecond)
			late = fmt.Sprintf("the time limit of all checks (%v) is over, and it did not end within %v", context.Cause(n.Context), limit)
			tick.Reset(max(limit/ticks, time.Millisecond))
			stopped, busy = nil, 0
		case <-tick.C:
			if n.within.Load() == 0 {
				busy++
			}
		}
		if n.stuck.Load() && n.within.Load() == 0 {
			return // a check within this one did not end, and has been told
		}
	}
	stacks := make([]byte, 1<<20)
	n.Errorf("%s; all goroutines:\n%s", late, stacks[:runtime.Stack(stacks, true)])
	n.stuck.Store(true)
}

// conclude settles the result and tells it.
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
