// Package logtest collects text that several goroutines write, for example a log or the output of processes. Only tests
// import it.
package logtest

import (
	"bytes"
	"sync"
)

// Buffer is an [io.Writer] that several goroutines write, and that a test reads. Its zero value is empty.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements [io.Writer].
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns all text so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
