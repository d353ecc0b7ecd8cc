package lab

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/weather"
)

// Options configures an Applier.
type Options struct {
	Setup   Setup
	Weather *weather.Weather
	Rank    int
	Device  device.Device // slowed down if there is no quota; need not implement device.Slowable
	// Neighbour is the command that starts a noisy neighbour; see StartNeighbour.
	Neighbour []string
	// Warn is called with errors that do not end the run.
	Warn func(error)

	runCommand func(command ...string) error // replaced in tests
}

// Applier applies the conditions of a scenario to one rank. Only one goroutine may use it.
type Applier struct {
	opts       Options
	now        weather.Conditions
	means      Means
	quota      *quota          // nil: speed is simulated, or cannot be changed
	slow       device.Slowable // nil: a quota is used, or the device cannot be slowed down
	link       *link           // nil: the speed of the link cannot be changed
	neighbours []*Neighbour
	lost       bool // true after the exit of neighbours was reported
}

// Means describes how this process changes each condition.
type Means struct {
	Speed     Mean `json:"speed"`
	Neighbour Mean `json:"neighbour"`
	Link      Mean `json:"link"`
}

// Mean describes how one condition is changed.
type Mean struct {
	Kind Kind   `json:"kind"`
	How  string `json:"how"` // how the condition is changed, or the reason why it cannot be changed
}

// Kind states whether a condition is real or simulated.
type Kind string

// The kinds of means.
const (
	Real      Kind = "real"
	Simulated Kind = "simulated"
	NoEffect  Kind = "no effect"
)

// String returns a text such as "simulated: the device idles".
func (m Mean) String() string { return string(m.Kind) + ": " + m.How }

// Open determines how the conditions of this rank can be changed. It makes no permanent change.
func Open(o Options) *Applier {
	if o.runCommand == nil {
		o.runCommand = runCommand
	}
	a := &Applier{opts: o, now: weather.Fair}
	a.openSpeed()
	a.means.Neighbour, a.means.Link = Mean{Real, "a busy process on the rank's CPUs"},
		Mean{NoEffect, "no line changes this rank's link"}
	if o.Setup.Group != "" {
		a.means.Neighbour.How += ", in its control group"
	}
	if a.opts.mentions(func(l *weather.Line) bool { return l.BitsPerSecond > 0 }) {
		// without conditions for the link, leave the network unchanged
		var err error
		if a.link, err = openLink(o.Setup, o.runCommand); err != nil {
			a.link, a.means.Link = nil, Mean{NoEffect, err.Error()}
		} else {
			a.means.Link = Mean{Real, "token bucket on " + o.Setup.Interface}
		}
	}
	return a
}

// mentions reports whether kind returns true for any line of the scenario that applies to this rank.
func (o *Options) mentions(kind func(*weather.Line) bool) bool {
	for i := range o.Weather.Lines {
		if l := &o.Weather.Lines[i]; kind(l) && l.About(o.Rank) {
			return true
		}
	}
	return false
}

func (a *Applier) openSpeed() {
	p, why := a.opts.Setup, "it has no control group of its own"
	if p.Group != "" {
		q, err := openQuota(p.Group)
		if err == nil {
			a.quota, a.means.Speed = q, Mean{Real, fmt.Sprintf("CPU quota, %.3g CPUs at speed 1", q.cpus)}
			return
		}
		why = err.Error()
	}
	if s, ok := a.opts.Device.(device.Slowable); ok {
		err := s.SetSlowdown(p.Slowdown)
		if err == nil {
			a.slow, a.means.Speed = s, Mean{Simulated, "the device idles, because " + why}
			return
		}
		why += ", and " + err.Error()
	} else {
		why += fmt.Sprintf(", and device %s cannot be slowed down", a.opts.Device.Info().Name)
	}
	a.means.Speed = Mean{NoEffect, why}
}

// Means returns how the conditions of this rank are changed.
func (a *Applier) Means() Means { return a.means }

// Missing returns an error for each condition that the scenario requests for this rank, but that cannot be changed
// here.
func (a *Applier) Missing() []error {
	var missing []error
	for _, part := range []struct {
		name string
		mean Mean
		kind func(*weather.Line) bool
	}{
		{"speed", a.means.Speed, func(l *weather.Line) bool { return l.Speed > 0 && (l.Speed < 1 || l.Jitter > 0) }},
		{"link", a.means.Link, func(l *weather.Line) bool { return l.BitsPerSecond > 0 }},
	} {
		if part.mean.Kind == NoEffect && a.opts.mentions(part.kind) {
			missing = append(missing, fmt.Errorf("scenario: rank %d: %s has no effect on this machine: %s", a.opts.Rank,
				part.name, part.mean.How))
		}
	}
	return missing
}

// Before applies the conditions of the given step. If they equal those of the previous step, it does nothing.
func (a *Applier) Before(step int64) {
	want := a.opts.Weather.At(step, a.opts.Rank)
	a.watch()
	if want == a.now {
		return
	}
	was := a.now
	a.now = want
	var faults []error
	if want.Speed != was.Speed {
		faults = append(faults, a.setSpeed(want.Speed))
	}
	if want.Neighbours != was.Neighbours {
		faults = append(faults, a.setNeighbours(want.Neighbours))
	}
	if want.BitsPerSecond != was.BitsPerSecond {
		faults = append(faults, a.setLink(want.BitsPerSecond))
	}
	if err := errors.Join(faults...); err != nil {
		a.opts.Warn(fmt.Errorf("scenario: rank %d, step %d: %w", a.opts.Rank, step, err))
	}
}

func (a *Applier) setSpeed(speed float64) error {
	switch {
	case a.quota != nil:
		return a.quota.set(a.quota.cpus * speed)
	case a.slow != nil:
		return a.slow.SetSlowdown(min(a.opts.Setup.Slowdown/speed, maxSlowdown))
	}
	return nil // the condition cannot be changed, which Missing reports
}

func (a *Applier) setNeighbours(n int) error {
	for len(a.neighbours) > n {
		last := len(a.neighbours) - 1
		a.neighbours[last].Stop()
		a.neighbours = a.neighbours[:last]
	}
	for len(a.neighbours) < n {
		started, err := StartNeighbour(a.opts.Neighbour)
		if err != nil {
			return err
		}
		a.neighbours, a.lost = append(a.neighbours, started), false
	}
	return nil
}

// watch reports neighbours that have exited unexpectedly. It reports them only once.
func (a *Applier) watch() {
	for _, n := range a.neighbours {
		if ended, err := n.Ended(); ended && !a.lost {
			a.lost = true
			a.opts.Warn(
				fmt.Errorf("scenario: rank %d: the process that simulates a noisy neighbour ended unexpectedly: %v",
					a.opts.Rank, err))
		}
	}
}

func (a *Applier) setLink(bitsPerSecond int64) error {
	switch {
	case a.link == nil:
		return nil // the condition cannot be changed, which Missing reports
	case bitsPerSecond == 0:
		return a.link.close()
	}
	return a.link.set(bitsPerSecond)
}

// Close restores the original conditions.
func (a *Applier) Close() error {
	faults := []error{a.setNeighbours(0)}
	if a.quota != nil {
		faults = append(faults, a.quota.close())
	}
	if a.slow != nil && a.now.Speed != 1 {
		faults = append(faults, a.slow.SetSlowdown(a.opts.Setup.Slowdown))
	}
	if a.link != nil && a.now.BitsPerSecond != 0 {
		faults = append(faults, a.link.close())
	}
	a.now = weather.Fair
	return errors.Join(faults...)
}

// Describe returns a rank's conditions as text, with the kind of each: "speed 0.5 (simulated), 1 neighbour (real),
// link 10 Mbit/s (no effect)".
func (m Means) Describe(c weather.Conditions) string {
	if c.Alike(weather.Fair) {
		return "as usual"
	}
	var parts []string
	add := func(mean Mean, format string, args ...any) {
		parts = append(parts, fmt.Sprintf(format, args...)+" ("+string(mean.Kind)+")")
	}
	if c.Jitter {
		add(m.Speed, "speed %.3g with jitter", c.Median)
	} else if c.Median != 1 {
		add(m.Speed, "speed %.3g", c.Median)
	}
	switch {
	case c.Neighbours == 1:
		add(m.Neighbour, "1 neighbour")
	case c.Neighbours > 1:
		add(m.Neighbour, "%d neighbours", c.Neighbours)
	}
	if c.BitsPerSecond > 0 {
		add(m.Link, "link %s", weather.Bandwidth(c.BitsPerSecond))
	}
	return strings.Join(parts, ", ")
}
