package discovery

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ShellEnvironment returns the environment with which the nearest interactive shell above this process started. It
// returns nil if there is no such shell, or if the system has no /proc.
//
// A launcher that starts a shell passes its variables to the shell, and the shell passes them to every program that the
// user starts. These programs are not ranks.
func ShellEnvironment() []string { return shellEnvironment("/proc", os.Getppid()) }

// mostAncestors limits the search, which could otherwise be endless, because processes can get other parents during the
// search.
const mostAncestors = 64

func shellEnvironment(proc string, pid int) []string {
	for range mostAncestors {
		if pid <= 1 {
			return nil
		}
		folder := filepath.Join(proc, strconv.Itoa(pid))
		command, err := os.ReadFile(filepath.Join(folder, "cmdline"))
		if err != nil {
			return nil
		}
		input, _ := os.Readlink(filepath.Join(folder, "fd", "0"))
		if interactive(nulSeparated(command), input) {
			environment, err := os.ReadFile(filepath.Join(folder, "environ"))
			if err != nil {
				return nil
			}
			return nulSeparated(environment)
		}
		if pid = parentOf(folder); pid < 0 {
			return nil
		}
	}
	return nil
}

func nulSeparated(text []byte) []string {
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}

// parentOf returns the fourth field of the file stat, the parent of a process. The second field is a name in
// parentheses, which may contain any characters.
func parentOf(folder string) int {
	stat, err := os.ReadFile(filepath.Join(folder, "stat"))
	if err != nil {
		return -1
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return -1
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return -1
	}
	return parent
}

var shells = []string{"ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "sh", "tcsh", "zsh"}

// interactive reports whether a process is a shell that reads commands from a terminal. The parameter input is its
// standard input. A shell that runs a script or a command (-c) is not interactive.
func interactive(command []string, input string) bool {
	if len(command) == 0 || !slices.Contains(shells, strings.TrimPrefix(filepath.Base(command[0]), "-")) {
		return false
	}
	if !strings.HasPrefix(input, "/dev/pts/") && !strings.HasPrefix(input, "/dev/tty") && input != "/dev/console" {
		return false
	}
	for i := 1; i < len(command); i++ {
		switch argument := command[i]; {
		case argument == "--rcfile" || argument == "--init-file" || argument == "-o" || argument == "-O":
			i++ // skip the value of the option
		case !strings.HasPrefix(argument, "-") && !strings.HasPrefix(argument, "+"):
			return false // the argument is a script
		case !strings.HasPrefix(argument, "--") && strings.Contains(argument, "c"):
			return false // the argument contains option -c
		}
	}
	return true
}

// inherited reports whether the interactive shell above this process started with the same values of all variables
// whose names start with one of the prefixes.
func (in *input) inherited(prefixes ...string) bool {
	found := false
	for name, value := range in.env {
		if !slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			continue
		}
		if given, set := in.shell[name]; !set || given != value {
			return false
		}
		found = true
	}
	return found
}
