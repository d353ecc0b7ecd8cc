package session

import (
	"time"

	"github.com/hetero-train/hetero-train/engine/config"
)

// Session is the process of one command that works with a configuration: its settings, its options, and the resources that it closes at the end.
type Session struct {
	Cfg     *config.Config
	Opts    Options
	Started time.Time
	close   []func() error
}

// New begins now.
func New(cfg *config.Config, opts Options) Session {
	return Session{Cfg: cfg, Opts: opts, Started: time.Now()}
}

// Later adds a resource to close. Resources are closed in reverse order.
func (s *Session) Later(f func() error) { s.close = append(s.close, f) }

// CloseAll frees in reverse order; what goes wrong there changes no result.
func (s *Session) CloseAll() {
	for i := len(s.close) - 1; i >= 0; i-- {
		if err := s.close[i](); err != nil {
			s.Opts.Log.Warn("closing", "error", err)
		}
	}
}

// Seconds is 0, which means none, for 0 alone; more than ten years is ten years, whose multiples are durations too.
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

// NameKey is the name of the run.
const NameKey = "experiment.name"

// Named reports whether the user chose the run's name, in the file or on the command line.
func (j *Session) Named() bool { return j.Cfg.Origin(NameKey) != "" }
