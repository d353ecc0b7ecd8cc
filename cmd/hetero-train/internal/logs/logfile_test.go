package logs

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/profiler/spool"
)

// blocked is a file on an unresponsive disk: writes block until gate is closed.
type blocked struct {
	gate  chan struct{}
	lines int
}

func (b *blocked) Write(p []byte) (int, error) {
	<-b.gate
	b.lines++
	return len(p), nil
}

// An unresponsive disk fills the queue. Further lines must be lost and counted, so that memory stays bounded.
func TestLinesThatFindTheQueueFullAreCounted(t *testing.T) {
	var screen bytes.Buffer
	q, disk := spool.NewQueue(nil), &blocked{gate: make(chan struct{})}
	f := &File{File: disk, Path: "log", Screen: slog.New(slog.NewTextHandler(&screen, nil)), Disk: q}
	line := []byte(strings.Repeat("x", 1<<20))
	const written = 40
	for range written {
		if n, err := f.Write(line); n != len(line) || err != nil {
			t.Fatalf("got %d, %v, want a write that never fails", n, err)
		}
	}
	if most := spool.MostQueued + len(line); q.Waiting() > most {
		t.Errorf("%d bytes are waiting, want at most %d", q.Waiting(), most)
	}
	close(disk.gate)
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	const want = "lost=23"
	if disk.lines != 17 || strings.Count(screen.String(), "can be written again") != 1 ||
		!strings.Contains(screen.String(), want) {
		t.Errorf("got %d lines of %d and the messages %q, want 17 and %s", disk.lines, written, &screen, want)
	}
}
