package session

import (
	"time"

	"github.com/hetero-train/hetero-train/engine/config"
)

// Session is one command with a configuration: settings, options, and the resources that it closes at the end.
type Session struct {
	Cfg     *config.Config
	Opts    Options
	Started time.Time
	close   []func() error
}

// New starts a session.
func New(cfg *config.Config, opts Options) Session {
	return Session{Cfg: cfg, Opts: opts, Started: time.Now()}
}

// Later adds a resource to close. Resources are closed in reverse order.
func (s *Session) Later(f func() error) { s.close = append(s.close, f) }

// CloseAll closes the resources in reverse order. It logs errors, which change no result.
func (s *Session) CloseAll() {
	for i := len(s.close) - 1; i >= 0; i-- {
		if err := s.close[i](); err != nil {
			s.Opts.Log.Warn("closing", "error", err)
		}
	}
}

// Seconds converts a setting to a duration. The result is 0 only for 0, and at most ten years, so that multiples do not
// overflow.
func Seconds(s float64) time.Duration {
	const most = 10 * 365 * 24 * time.Hour
	if s >= most.Seconds() {
		return most
	}
	if d := time.Duration(s * float64(time.Second)); d > 0 || s <= 0 {
		return d
	}
	return 1
}

// NameKey is the key of the run's name.
const NameKey = "experiment.name"

// Named reports whether the user set the run's name, in the file or on the command line.
func (s *Session) Named() bool { return s.Cfg.Origin(NameKey) != "" }
