//go:build !cgo || !linux

package gloo

import (
	"context"
	"fmt"

	"github.com/hetero-train/hetero-train/engine/collective"
)

// Communicator is one rank's end; this program cannot make one.
type Communicator struct{ collective.Communicator }

// Available says why Connect cannot work: this program was built without cgo, or not for Linux.
func Available() error {
	return fmt.Errorf("%w: this program was built without cgo or for another system than Linux", ErrUnavailable)
}

// Version is empty: there is none.
func Version() string { return "" }

// Die does nothing: there is no Communicator.
func (*Communicator) Die() {}

// Connect answers ErrUnavailable.
func Connect(context.Context, Config) (*Communicator, error) { return nil, Available() }
