package crowd

import (
	"fmt"
	"testing"
	"time"
)

// The pace must admit a burst from each address, delay the next connections, and refuse all others.
func TestThePaceOfEachAddress(t *testing.T) {
	var p Pace
	now := time.Now()
	admit := func(from string) (time.Duration, bool) {
		return p.Admit(Address(from), now)
	}
	burst, every := ofEach.burst, ofEach.every
	waiting := int(mostWait / every)
	for _, address := range []string{"10.0.0.1:1", "10.0.0.2:1"} { // a flood from one must not affect the other
		for i := range 1000 {
			wait, ok := admit(address)
			if want := max(0, time.Duration(i+1-burst)*every); ok != (i < burst+waiting) || ok && wait != want {
				t.Fatalf("%s: connection %d: got a wait of %v, %v, want %v", address, i, wait, ok, want)
			}
		}
	}
	now = now.Add(time.Hour)
	for _, ok := admit("10.0.0.1:2"); ok; _, ok = admit("10.0.0.1:2") {
	}
	passed := 0
	for range 1000 { // 10 s
		now = now.Add(10 * time.Millisecond)
		if _, ok := admit("10.0.0.1:2"); ok {
			passed++
		}
		admit("10.0.0.1:3")
	}
	if want := int(10 * time.Second / every); passed != want {
		t.Errorf("%d connections admitted in 10 s, want %d", passed, want)
	}
	now = now.Add(time.Hour)
	if wait, ok := admit("10.0.0.1:4"); !ok || wait > 0 {
		t.Error("after an hour without connections, one is delayed or refused")
	}
}

// Many addresses must not use unlimited memory or CPU time.
func TestThePaceOfManyAddresses(t *testing.T) {
	var p Pace
	now := time.Now()
	passed := 0
	const seconds = 20
	for i := range seconds * 1000 {
		now = now.Add(time.Millisecond)
		wait, ok := p.Admit(fmt.Sprintf("10.%d.%d.1", i/256, i%256), now)
		if wait > mostWait || len(p.due) > mostPaced {
			t.Fatalf("connection %d: a wait of %v; %d addresses are stored", i, wait, len(p.due))
		}
		if ok {
			passed++
		}
	}
	if want := ofAll.burst + (seconds+1)*mostServedRate; passed < want-1 || passed > want+1 {
		t.Errorf("%d connections admitted in %d s, want %d", passed, seconds, want)
	}
}
