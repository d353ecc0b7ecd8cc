package compute

import (
	"bytes"
	"log/slog"
	"math"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/device/null"
	"github.com/hetero-train/hetero-train/engine/memory"
)

// The user's settings must apply as long as the rank's account of memory permits.
func TestTheAccountLimitsTheHeap(t *testing.T) {
	native, err := null.New(null.Model{})
	if err != nil {
		t.Fatal(err)
	}
	percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(-1)
	defer debug.SetGCPercent(percent)
	defer debug.SetMemoryLimit(limit)
	const gib = 1 << 30
	bytesOf := memory.Limit{Bytes: 8 * gib}
	addresses := memory.Limit{Bytes: 8 * gib, Source: "RLIMIT_DATA", Addresses: true}
	for _, c := range []struct {
		name        string
		growth      int   // GOGC
		most        int64 // GOMEMLIMIT
		limit       memory.Limit
		held        int // GOGC during the measurement of the rank
		wantGrowth  int
		wantLimit   int64
		warns       string // parts of the warnings, separated by spaces
		warnsNumber int
	}{
		{"defaults", 100, math.MaxInt64, bytesOf, 100, 100, 8 * gib, "", 0},
		{"no limit", 400, math.MaxInt64, memory.Limit{}, 100, 400, math.MaxInt64, "", 0},
		{"GOGC=400", 400, math.MaxInt64, bytesOf, 100, 400, 8 * gib, "", 0},
		{"GOGC=off", -1, math.MaxInt64, bytesOf, 100, -1, 8 * gib, "", 0},
		{"GOGC=400 and addresses", 400, math.MaxInt64, addresses, 100, 100, 8 * gib, "GOGC got_percent=400 RLIMIT_DATA", 1},
		{"GOGC=off and addresses", -1, math.MaxInt64, addresses, 100, 100, 8 * gib, "GOGC got_percent=-1", 1},
		{"GOGC=50 and addresses", 50, math.MaxInt64, addresses, 50, 50, 8 * gib, "", 0},
		{"a small GOMEMLIMIT", 100, 2 * gib, bytesOf, 100, 100, 2 * gib, "", 0},
		{"a large GOMEMLIMIT", 400, 16 * gib, addresses, 100, 100, 8 * gib, `GOMEMLIMIT got="16.00 using="8.00`, 2},
	} {
		debug.SetGCPercent(c.growth)
		debug.SetMemoryLimit(c.most)
		var log bytes.Buffer
		opts := session.Options{Log: slog.New(slog.NewTextHandler(&log, nil))}
		k := &Rank{Device: native, Process: session.New(nil, opts)}
		growth := func() int {
			now := debug.SetGCPercent(100)
			debug.SetGCPercent(now)
			return now
		}
		k.HoldHeap()
		if got := growth(); got != c.held {
			t.Errorf("%s: got GOGC %d while the rank is measured, want %d", c.name, got, c.held)
		}
		k.BoundHeap(memory.Account{Limit: c.limit})
		if got, most := growth(), debug.SetMemoryLimit(-1); got != c.wantGrowth || most != c.wantLimit {
			t.Errorf("%s: got GOGC %d and a limit of %d bytes, want %d and %d", c.name, got, most, c.wantGrowth,
				c.wantLimit)
		}
		for _, part := range strings.Fields(c.warns) {
			if !strings.Contains(log.String(), part) {
				t.Errorf("%s: got warnings %q, want %q", c.name, log.String(), part)
			}
		}
		if got := strings.Count(log.String(), "level=WARN"); got != c.warnsNumber {
			t.Errorf("%s: got %d warnings, want %d: %s", c.name, got, c.warnsNumber, log.String())
		}
		k.Process.CloseAll()
		if got, most := growth(), debug.SetMemoryLimit(-1); got != c.growth || most != c.most {
			t.Errorf("%s: got GOGC %d and a limit of %d bytes after the run, want those of the user", c.name, got, most)
		}
	}
}

// An account contains garbage of Go's heap. If GOGC is above the default, the garbage in the account must not depend on
// it.
func TestGarbageDoesNotDependOnALargeGOGC(t *testing.T) {
	percent := debug.SetGCPercent(100)
	defer debug.SetGCPercent(percent)
	debug.FreeOSMemory()
	want := garbageBytes()
	for _, growth := range []int{400, -1} {
		debug.SetGCPercent(growth)
		debug.FreeOSMemory()
		if got := garbageBytes(); got < want/2 || got > 2*want {
			t.Errorf("GOGC %d: got %d bytes, want about %d", growth, got, want)
		}
	}
}
