package discovery

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Fault is an unusable value.
type Fault struct {
	Name string // name of the variable or flag
	Got  string // text of the value, or "not set"
	Want string
}

func (f Fault) String() string { return fmt.Sprintf("%s: %s, want %s", f.Name, f.Got, f.Want) }

// Error lists all faults that Find has found.
type Error struct {
	Source string // the source that would have decided
	Faults []Fault
}

func (e *Error) Error() string {
	texts := make([]string, len(e.Faults))
	for i, fault := range e.Faults {
		texts[i] = fault.String()
	}
	return fmt.Sprintf("find the rank of this process (source: %s): %s", e.Source, strings.Join(texts, "; "))
}

// input reads variables and options for one source, and collects the faults of their values.
type input struct {
	env     map[string]string
	shell   map[string]string // variables in Options.Shell
	options Options
	faults  []Fault
}

func (in *input) fault(name, got, want string, args ...any) {
	in.faults = append(in.faults, Fault{name, got, fmt.Sprintf(want, args...)})
}

// variable returns an environment variable as a Value. If the variable is set but empty, the text of the Value is
// emptyText. The value is then a fault, but only if a source reads it.
func (in *input) variable(name string) Value {
	text, set := in.env[name]
	if set && text == "" {
		text = emptyText
	}
	return Value{text, name}
}

// emptyText represents a variable that is set but empty. It cannot be a real value, because no variable can contain a
// NUL.
const emptyText = "\x00"

// firstOf returns the first variable that is set, or the first name if none is set.
func (in *input) firstOf(names ...string) Value {
	for _, name := range names {
		if value := in.variable(name); value.given() {
			return value
		}
	}
	return in.variable(names[0])
}

func (v Value) given() bool { return v.Text != "" }

// got formats a value for a fault. It shortens a long value.
func got(text string) string {
	const most = 80
	switch {
	case text == "":
		return "not set"
	case text == emptyText:
		return "got an empty value"
	case len(text) > most:
		return fmt.Sprintf("got %q (and %d bytes more)", text[:most], len(text)-most)
	}
	return fmt.Sprintf("got %q", text)
}

// number parses an integer between low and high. If the value is invalid, number records a fault and returns -1.
func (in *input) number(value Value, low, high int, what string) int {
	n, err := wholeNumber(value.Text)
	if err != nil || n < low || n > high {
		in.fault(value.From, got(value.Text), "%s, a whole number from %d to %d", what, low, high)
		return -1
	}
	return n
}

// optional is like number, but returns fallback if the value is not set.
func (in *input) optional(value Value, low, high, fallback int, what string) int {
	if !value.given() {
		return fallback
	}
	return in.number(value, low, high, what)
}

var errNotWhole = errors.New("not a whole number")

// wholeNumber parses decimal digits only: no sign, space or other base.
func wholeNumber(text string) (int, error) {
	if text == "" || len(text) > 10 || strings.Trim(text, "0123456789") != "" {
		return 0, errNotWhole
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return int(n), err
}

// host returns a host name or IP address, and removes the brackets of an IPv6 address.
func (in *input) host(value Value) string {
	text := value.Text
	if inner, ok := strings.CutPrefix(text, "["); ok {
		text = strings.TrimSuffix(inner, "]")
	}
	if !validHost(text) {
		in.fault(value.From, got(value.Text), "the host of rank 0: a name or an IP address, without a port")
	}
	return text
}

// validHost accepts letters, digits and - . _, and also : and % in IPv6 addresses.
func validHost(text string) bool {
	if text == "" || len(text) > 253 || text[0] == '-' || text[0] == '.' {
		return false
	}
	colons := strings.Count(text, ":")
	for _, r := range text {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '.', r == '_':
		case (r == ':' || r == '%') && colons >= 2:
		default:
			return false
		}
	}
	return true
}
