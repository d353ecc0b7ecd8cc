//go:build !cgo || !linux

package gloo

import (
	"context"
	"fmt"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/nativelib"
)

// Communicator is one rank's endpoint. This program cannot create one.
type Communicator struct{ collective.Communicator }

// Available returns an error, because this program was built without cgo, or for a system other than Linux.
func Available() error {
	return fmt.Errorf("%w: %w", ErrUnavailable, nativelib.Loadable())
}

// Version returns "", because there is no library.
func Version() string { return "" }

// Shape returns the zero value, because no Communicator exists.
func (*Communicator) Shape() Shape { return Shape{} }

// Die does nothing, because no Communicator exists.
func (*Communicator) Die() {}

// Connect returns ErrUnavailable.
func Connect(context.Context, Config) (*Communicator, error) { return nil, Available() }
