package spool

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The disk accepts some, none or all of the data.
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
		t.Errorf("got %d bytes, %d dropped, %d times synced, %d closed; want all %d bytes in order", file.Len(), s.Dropped(), synced, closed, len(want))
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
