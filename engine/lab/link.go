package lab

import (
	"fmt"
	"os/exec"
	"strings"
)

// link limits the rate of a network interface with tc.
type link struct {
	name string
	base string // constant rate; "" if there is none
	run  func(command ...string) error
}

// openLink checks that the interface exists and can be limited, by setting its constant rate.
func openLink(p Setup, run func(command ...string) error) (*link, error) {
	l := &link{name: p.Interface, base: p.Link, run: run}
	if p.Interface == "" {
		return nil, fmt.Errorf("the rank has no network interface of its own (%s is not set)", InterfaceVariable)
	}
	if l.base == "" {
		if err := l.set(100e9); err != nil { // sets a limit, because close deletes it
			return nil, err
		}
	}
	return l, l.close()
}

// set limits the interface to bitsPerSecond.
func (l *link) set(bitsPerSecond int64) error {
	return l.limit(fmt.Sprintf("%dbit", bitsPerSecond), bitsPerSecond)
}

func (l *link) limit(rate string, bitsPerSecond int64) error {
	burst := max(bitsPerSecond/8/100, 32<<10) // in bytes: the traffic of 10 ms, at least 32 KiB
	return l.run("tc", "qdisc", "replace", "dev", l.name, "root", "tbf", "rate", rate, "burst", fmt.Sprint(burst),
		"latency", "100ms")
}

// close restores the constant rate.
func (l *link) close() error {
	if l.base != "" {
		return l.limit(l.base, 1e9)
	}
	return l.run("tc", "qdisc", "del", "dev", l.name, "root")
}

// runCommand runs a program; its error contains the program's output.
func runCommand(command ...string) error {
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
