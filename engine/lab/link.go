package lab

import (
	"fmt"
	"os/exec"
	"strings"
)

// link limits a network interface with tc.
type link struct {
	name string
	base string // the rate that it has all the time, "" for none
	run  func(command ...string) error
}

// openLink finds out whether the interface is there and may be limited, by setting what it should have.
func openLink(p Place, run func(command ...string) error) (*link, error) {
	l := &link{name: p.Interface, base: p.Link, run: run}
	if p.Interface == "" {
		return nil, fmt.Errorf("the rank has no network interface of its own (%s is not set)", InterfaceVariable)
	}
	if l.base == "" {
		if err := l.set(100e9); err != nil { // there is nothing to delete yet
			return nil, err
		}
	}
	return l, l.close()
}

// set limits it to so many bits a second.
func (l *link) set(bitsPerSecond int64) error {
	return l.limit(fmt.Sprintf("%dbit", bitsPerSecond), bitsPerSecond)
}

func (l *link) limit(rate string, bitsPerSecond int64) error {
	burst := max(bitsPerSecond/8/100, 32<<10) // bytes: what comes in a hundredth of a second
	return l.run("tc", "qdisc", "replace", "dev", l.name, "root", "tbf", "rate", rate, "burst", fmt.Sprint(burst), "latency", "100ms")
}

// close gives it the rate that it had.
func (l *link) close() error {
	if l.base != "" {
		return l.limit(l.base, 1e9)
	}
	return l.run("tc", "qdisc", "del", "dev", l.name, "root")
}

// runCommand runs a program; the error has what it said.
func runCommand(command ...string) error {
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
