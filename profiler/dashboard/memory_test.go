package dashboard

import (
	"math"
	"net/http"
	"runtime/debug"
	"testing"
)

// The memory of many streams must raise the limit. Otherwise Go's garbage collector would work all the time.
func TestTheMemoryLimitGrowsWithConnections(t *testing.T) {
	before := debug.SetMemoryLimit(math.MaxInt64)
	defer debug.SetMemoryLimit(before)
	const base = 1 << 40 // far above the memory that the test uses
	m := &memory{base: base, each: connectionBytes}
	m.set()
	for _, x := range []struct{ opened, closed, want int }{
		{0, 0, 0}, {1, 0, limitStep}, {limitStep - 1, 0, limitStep}, {1, 0, 2 * limitStep}, {998, 0, 9 * limitStep},
		{0, 1, 9 * limitStep}, {0, 1126 - limitStep, limitStep}, {1, 1, 2 * limitStep}, {0, limitStep, 0},
	} {
		for range x.opened {
			m.track(nil, http.StateNew)
			m.track(nil, http.StateActive)
		}
		for range x.closed {
			m.track(nil, http.StateClosed)
		}
		if got, want := debug.SetMemoryLimit(-1), int64(base+x.want*connectionBytes); got != want {
			t.Errorf("%d opened and %d closed: got a limit of %d connections, want %d", x.opened, x.closed,
				(got-base)/connectionBytes, x.want)
		}
	}
}
