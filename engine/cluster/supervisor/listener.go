package supervisor

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/engine/crowd"
)

// ListenerVariable is the environment variable with the file descriptor of rank 0's listening socket.
const ListenerVariable = "HETERO_LISTENER_FD"

// firstExtraFile is the file descriptor that the first file in exec.Cmd.ExtraFiles has in the child.
const firstExtraFile = 3

// Listener returns the socket that a supervisor opened for rank 0, or nil if environment names no socket. The parameter
// environment has the form of os.Environ. Call it at most once per process.
func Listener(environment []string) (net.Listener, error) {
	number, err := inherited(environment, ListenerVariable)
	if err != nil || number == 0 {
		return nil, err
	}
	file := os.NewFile(uintptr(number), "listener")
	defer file.Close()
	listener, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("use the inherited socket of rank 0 (%s=%d): %w", ListenerVariable, number, err)
	}
	return listener, nil
}

// inherited returns the file descriptor that a variable of environment names, or 0 without the variable.
func inherited(environment []string, variable string) (uint64, error) {
	for _, entry := range environment {
		text, ok := strings.CutPrefix(entry, variable+"=")
		if !ok {
			continue
		}
		number, err := strconv.ParseUint(text, 10, 16)
		if err != nil || number < firstExtraFile {
			return 0, fmt.Errorf("%s: got %q, want the number of an open file descriptor, at least %d", variable, text,
				firstExtraFile)
		}
		return number, nil
	}
	return 0, nil
}

// openPort listens on a free port of loopback for rank 0.
func openPort() (file *os.File, port int, err error) {
	listener, err := crowd.Listen(net.JoinHostPort(loopback, "0"))
	if err != nil {
		return nil, 0, fmt.Errorf("open a port for rank 0: %w", err)
	}
	defer listener.Close() // the copy in file stays open
	tcp := listener.(*net.TCPListener)
	if file, err = tcp.File(); err != nil {
		return nil, 0, fmt.Errorf("open a port for rank 0: %w", err)
	}
	return file, tcp.Addr().(*net.TCPAddr).Port, nil
}
