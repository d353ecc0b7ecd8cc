package spool

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/diskwatch"
)

// In each trial, the disk accepts some, none or all of the data.
func TestRecordsKeepTheirOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	errFull := errors.New("full")
	var file strings.Builder
	full, synced, closed := true, 0, 0
	var told []error
	s := Start(Options{Every: time.Hour, MostBytes: 1 << 20, OnFault: func(err error) { told = append(told, err) },
		Write: func(records []byte) ([]byte, error) {
			n := len(records)
			if full {
				n = r.IntN(n + 1)
			}
			file.Write(records[:n])
			if n < len(records) {
				return records[n:], errFull
			}
			return nil, nil
		},
		Sync:  func() error { synced++; return nil },
		Close: func() error { closed++; return nil }})
	want := ""
	for i := range 300 {
		record := strconv.Itoa(i) + "\n"
		want += record
		s.Add(func(records []byte) []byte { return append(records, record...) })
		if i%3 == 0 {
			if err := s.Flush(); err != nil && !errors.Is(err, errFull) {
				t.Fatal(err)
			}
		}
	}
	full = false
	for range 2 { // the second Close has no effect
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if file.String() != want || s.Dropped() != 0 || synced != 1 || closed != 1 {
		t.Errorf("got %d bytes, %d dropped, %d times synced, %d closed; want all %d bytes in order", file.Len(),
			s.Dropped(), synced, closed, len(want))
	}
	if len(told) < 2 || told[len(told)-1] != nil {
		t.Errorf("got faults %v, want some, and that they ended", told)
	}
	for i := 1; i < len(told); i++ {
		if (told[i] == nil) == (told[i-1] == nil) {
			t.Errorf("told twice of the same: %v", told[i-1:i+1])
		}
	}
}

// A flush that waits in the queue runs after Close. It writes nothing, so it must not report that the disk works again.
func TestAFlushAfterCloseReportsNoEndOfAFault(t *testing.T) {
	q := NewQueue(nil)
	errFull := errors.New("full")
	var told []error
	s := Start(Options{Every: time.Hour, MostBytes: 100, Queue: q, OnFault: func(err error) {
		told = append(told, err)
	},
		Write: func(records []byte) ([]byte, error) { return records, errFull },
		Sync:  func() error { return nil }, Close: func() error { return nil }})
	s.Add(func(records []byte) []byte { return append(records, "a"...) })
	if err := s.Close(); !errors.Is(err, errFull) {
		t.Errorf("got %v, want %v", err, errFull)
	}
	s.SyncSoon()
	<-q.Written()
	if len(told) != 1 || !errors.Is(told[0], errFull) {
		t.Errorf("told %v, want the fault only", told)
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}

func TestRecordsThatFindNoRoomAreCounted(t *testing.T) {
	s := Start(Options{Every: time.Hour, MostBytes: 3, Write: func(records []byte) ([]byte, error) { return nil, nil },
		Sync: func() error { return nil }, Close: func() error { return nil }})
	for range 5 {
		s.Add(func(records []byte) []byte { return append(records, "ab"...) })
	}
	if got := s.Dropped(); got != 3 {
		t.Errorf("got %d dropped, want 3", got)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// If the disk does not respond, Add must return without delay, and no record may be lost. The queue must report that it
// is full.
func TestADiskThatDoesNotAnswerCostsNoRecord(t *testing.T) {
	watch := new(diskwatch.Watch)
	q := NewQueue(watch)
	frozen, began := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var file strings.Builder
	s := Start(Options{Every: time.Hour, MostBytes: 100, Queue: q, File: "metrics",
		Write: func(records []byte) ([]byte, error) {
			once.Do(func() { close(began) })
			<-frozen
			file.Write(records)
			return nil, nil
		},
		Sync: func() error { return nil }, Close: func() error { return nil }})
	s.SyncSoon()
	<-began
	want := ""
	for i := range 1000 {
		if i == 10 && q.Full() {
			t.Error("the queue is full after 10 records")
		}
		record := strconv.Itoa(i) + "\n"
		want += record
		s.Add(func(records []byte) []byte { return append(records, record...) })
	}
	if !q.Full() {
		t.Error("the queue is not full")
	}
	written := q.Written()
	select {
	case <-written:
		t.Error("the records are written, although the disk does not answer")
	default:
	}
	close(frozen)
	<-written
	s.SyncSoon()
	<-q.Written()
	if q.Full() || s.Dropped() > 0 || file.String() != want {
		t.Errorf("full %v, %d records dropped, got %d bytes, want %d in order", q.Full(), s.Dropped(), file.Len(),
			len(want))
	}
	if err := errors.Join(s.Close(), q.Close()); err != nil {
		t.Error(err)
	}
}

// If the disk refuses records, training must not wait for it.
func TestADiskThatRefusesRecordsDoesNotFillTheQueue(t *testing.T) {
	q := NewQueue(nil)
	s := Start(Options{Every: time.Hour, MostBytes: 3, Queue: q, Write: func(records []byte) ([]byte, error) {
		return records, errors.New("full")
	},
		Sync: func() error { return nil }, Close: func() error { return nil }})
	add := func() { s.Add(func(records []byte) []byte { return append(records, "ab"...) }) }
	add()
	s.SyncSoon()
	<-q.Written()
	for range 5 {
		add()
	}
	if q.Full() || s.Dropped() == 0 {
		t.Errorf("full %v, %d records dropped, want some, and no wait", q.Full(), s.Dropped())
	}
	s.Close() // Close returns the error of Write
	q.Close()
}

func TestJobsRunInTheirOrderAndAfterClose(t *testing.T) {
	q := NewQueue(nil)
	var got []int
	for i := range 100 {
		q.Do("", 1, func() { got = append(got, i) })
	}
	q.Close()
	q.Do("", 1, func() { got = append(got, 100) })
	for i, n := range got {
		if n != i {
			t.Fatalf("got %v", got)
		}
	}
	if len(got) != 101 || q.Waiting() != 0 {
		t.Errorf("got %d jobs, %d bytes wait", len(got), q.Waiting())
	}
}

// A job may add a job while Close already waits. Close must perform both. A job that is added after Close must be
// performed immediately.
func TestAJobOfAJobIsPerformedByClose(t *testing.T) {
	q := NewQueue(nil)
	begun, closing := make(chan struct{}), make(chan struct{})
	var done []string
	q.Do("a", 1, func() {
		close(begun)
		<-closing
		for q.mu.Lock(); !q.closed; q.mu.Lock() {
			q.mu.Unlock()
			runtime.Gosched()
		}
		q.mu.Unlock()
		q.Do("b", 1, func() { done = append(done, "inner") })
		done = append(done, "outer")
	})
	<-begun
	close(closing)
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	q.Do("c", 1, func() { done = append(done, "late") })
	if want := []string{"outer", "inner", "late"}; !slices.Equal(done, want) || q.Waiting() != 0 {
		t.Errorf("got %q, %d bytes waiting; want %q and none", done, q.Waiting(), want)
	}
}
