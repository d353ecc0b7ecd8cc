package httpguard

import (
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/engine/crowd"
)

const (
	// mostWrong is the number of wrong secrets that an address may send in quick succession. After that it may send one
	// per second.
	mostWrong = 10
	// mostAddresses is the largest number of addresses in a Limiter. It limits the memory.
	mostAddresses = 4096
)

// Limiter counts the wrong secrets from each address, so that a server can refuse further wrong secrets and log a
// warning. It never blocks requests with the correct secret. Clients behind one proxy have the same address, and an
// attacker among them could otherwise lock out the others. The length of the secret protects against guessing. The zero
// value is ready for use and safe for concurrent use.
type Limiter struct {
	mu  sync.Mutex
	all map[string]*attempts
}

type attempts struct {
	wrong float64
	last  time.Time
	over  bool // Wrong has reported that the address has sent too many wrong secrets
}

// Wrong counts a wrong secret in a request. The result over reports that the address has sent too many wrong secrets.
// first is true only for the first request with this result.
func (l *Limiter) Wrong(r *http.Request) (from string, over, first bool) {
	from = crowd.Address(r.RemoteAddr)
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.all[from]
	if a == nil {
		if l.all == nil {
			l.all = map[string]*attempts{}
		}
		if len(l.all) >= mostAddresses {
			l.forget()
		}
		a = &attempts{}
		l.all[from] = a
	}
	now := time.Now()
	if a.wrong = max(0, a.wrong-now.Sub(a.last).Seconds()); a.wrong < 1 {
		a.over = false
	}
	a.last = now
	a.wrong = min(a.wrong+1, mostWrong+1)
	over = a.wrong > mostWrong
	first = over && !a.over
	a.over = a.over || over
	return from, over, first
}

// forget removes a quarter of the addresses: those that have not sent a wrong secret for the longest time. An address
// that continues to send wrong secrets is therefore not removed, even if many other addresses are added.
func (l *Limiter) forget() {
	byAge := slices.SortedFunc(maps.Keys(l.all), func(a, b string) int { return l.all[a].last.Compare(l.all[b].last) })
	for _, from := range byAge[:len(byAge)/4] {
		delete(l.all, from)
	}
}
