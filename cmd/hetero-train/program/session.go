package program

import (
	"time"

	"github.com/hetero-train/hetero-train/engine/config"
)

// Session is the process of one command that works with a configuration: its settings, its options, and the resources that it closes at the end.
type Session struct {
	cfg     *config.Config
	opts    trainOptions
	started time.Time
	close   []func() error
}

// newSession begins now.
func newSession(cfg *config.Config, opts trainOptions) Session {
	return Session{cfg: cfg, opts: opts, started: time.Now()}
}

// later adds a resource to close. Resources are closed in reverse order.
func (s *Session) later(f func() error) { s.close = append(s.close, f) }

// closeAll frees in reverse order; what goes wrong there changes no result.
func (s *Session) closeAll() {
	for i := len(s.close) - 1; i >= 0; i-- {
		if err := s.close[i](); err != nil {
			s.opts.log.Warn("closing", "error", err)
		}
	}
}

// seconds is 0, which means none, for 0 alone; more than ten years is ten years, whose multiples are durations too.
func seconds(s float64) time.Duration {
	const most = 10 * 365 * 24 * time.Hour
	if s >= most.Seconds() {
		return most
	}
	if d := time.Duration(s * float64(time.Second)); d > 0 || s <= 0 {
		return d
	}
	return 1
}
