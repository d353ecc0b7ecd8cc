package session

import (
	"context"
	"time"

	"github.com/hetero-train/hetero-train/engine/config"
)

// Session is one execution of a command with a configuration: settings, options, and the resources to close at the end.
type Session struct {
	Cfg     *config.Config
	Opts    Options
	Started time.Time
	stage   string // the stage that is being opened, or was opened last
	opened  []resource
}

// New returns a session without resources.
func New(cfg *config.Config, opts Options) *Session {
	return &Session{Cfg: cfg, Opts: opts, Started: time.Now()}
}

// Stage is a step of the preparation of a command. Its function Open must pass the resources that it opens to
// [Session.Later].
type Stage struct {
	Name string
	Open func(context.Context) error
}

// resource is a function that closes a resource, with the stage that opened the resource.
type resource struct {
	stage string // "": the resource was opened before the first stage
	close func() error
}

// Open opens a stage. If the stage fails, CloseAll still closes the resources that the stage has opened before.
func (s *Session) Open(ctx context.Context, stage Stage) error {
	s.stage = stage.Name
	return stage.Open(ctx)
}

// Later adds a function that closes a resource. CloseAll calls the functions in reverse order.
func (s *Session) Later(f func() error) { s.opened = append(s.opened, resource{s.stage, f}) }

// CloseAll closes the resources in reverse order. It logs errors, which do not change the result of the command.
func (s *Session) CloseAll() {
	for i := len(s.opened) - 1; i >= 0; i-- {
		if err := s.opened[i].close(); err != nil {
			s.Opts.Log.Warn("a resource of the command cannot be closed", "opened_for", s.opened[i].stage, "error", err)
		}
	}
}

// Seconds converts a setting in seconds to a duration. The result is 0 only if s is 0. It is at most ten years, so that
// multiples do not overflow.
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

// OperationLimit returns the time limit of an operation between ranks. The parameter timeout is
// parallel.timeout_seconds (s), after which rank 0 considers a silent rank lost. The limit is longer than timeout, so
// that rank 0 names a frozen rank before the operation fails.
func OperationLimit(timeout float64) time.Duration { return Seconds(timeout + min(timeout/4, 2)) }

// NameKey is the configuration key of a run's name.
const NameKey = "experiment.name"

// Named reports whether the user set the name of the run, in the file or on the command line.
func (s *Session) Named() bool { return s.Cfg.Origin(NameKey) != "" }
