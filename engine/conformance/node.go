package conformance

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
)

// node is a check that Run runs. Its methods are safe for concurrent use, except Run, FailNow, Fatal and Skip.
type node struct {
	*runner
	parent *node
	path   []string
	within atomic.Int32 // number of sub-checks that are running

	mu       sync.Mutex
	result   *Result
	failed   bool
	skipped  bool
	over     bool // the check has ended, so further messages are discarded
	cleanups []func()
}

var _ T = (*node)(nil)

// Helper implements TB. It does nothing, because messages do not contain the position of the caller.
func (*node) Helper() {}

// Name implements TB.
func (n *node) Name() string { return strings.Join(n.path, "/") }

// Run implements T. If a sub-check hangs, Run ends the calling goroutine.
func (n *node) Run(name string, f func(T)) bool {
	sub := n.run(n, name, f)
	if n.stuck.Load() {
		runtime.Goexit()
	}
	return sub == nil || !sub.Failed()
}

func (n *node) say(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.over {
		n.result.Output = append(n.result.Output, strings.TrimSuffix(text, "\n"))
	}
}

// Log implements TB.
func (n *node) Log(args ...any) { n.say(fmt.Sprintln(args...)) }

// Logf implements TB.
func (n *node) Logf(format string, args ...any) { n.say(fmt.Sprintf(format, args...)) }

// Error implements TB.
func (n *node) Error(args ...any) { n.Log(args...); n.Fail() }

// Errorf implements TB.
func (n *node) Errorf(format string, args ...any) { n.Logf(format, args...); n.Fail() }

// Fatal implements TB.
func (n *node) Fatal(args ...any) { n.Log(args...); n.FailNow() }

// Fatalf implements TB.
func (n *node) Fatalf(format string, args ...any) { n.Logf(format, args...); n.FailNow() }

// Fail implements TB. It also marks all enclosing checks as failed.
func (n *node) Fail() {
	for at := n; at != nil; at = at.parent {
		at.mu.Lock()
		at.failed = true
		at.mu.Unlock()
	}
}

// FailNow implements TB.
func (n *node) FailNow() { n.Fail(); runtime.Goexit() }

// Failed implements TB.
func (n *node) Failed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failed
}

// Skip implements TB.
func (n *node) Skip(args ...any) { n.Log(args...); n.skipNow() }

// Skipf implements TB.
func (n *node) Skipf(format string, args ...any) { n.Logf(format, args...); n.skipNow() }

func (n *node) skipNow() {
	n.mu.Lock()
	n.skipped = true
	n.mu.Unlock()
	runtime.Goexit()
}

// Skipped implements TB.
func (n *node) Skipped() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.skipped
}

// Cleanup implements TB.
func (n *node) Cleanup(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cleanups = append(n.cleanups, f)
}

// TempDir implements TB.
func (n *node) TempDir() string {
	dir, err := os.MkdirTemp("", "hetero-train-selftest-")
	if err != nil {
		n.Fatalf("temporary folder: %v", err)
	}
	n.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			n.Errorf("temporary folder: %v", err)
		}
	})
	return dir
}
