package crowd

import (
	"testing"
	"time"
)

// The pace must let a burst pass, and then delay each connection by at most its interval.
func TestThePaceOfConnections(t *testing.T) {
	var p Pace
	now := time.Now()
	for i := range burst {
		if pause := p.Pause(now); pause > 0 {
			t.Fatalf("connection %d of a burst waits %v", i, pause)
		}
	}
	for range 1000 {
		pause := p.Pause(now)
		if pause <= 0 || pause > every {
			t.Fatalf("got a pause of %v, want more than 0 and at most %v", pause, every)
		}
		now = now.Add(pause)
	}
	if pause := p.Pause(now.Add(time.Hour)); pause > 0 {
		t.Errorf("after an hour without connections, one waits %v", pause)
	}
}
