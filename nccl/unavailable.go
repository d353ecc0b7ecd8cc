//go:build !cgo || !linux

package nccl

import (
	"context"

	"github.com/hetero-train/hetero-train/engine/collective"
)

// Communicator is one rank's end; this program cannot make one.
type Communicator struct{ collective.Communicator }

// Available says why Connect cannot work: this program was built without cgo, or not for Linux.
func Available() error { return ErrNotBuilt }

// Loaded answers ErrNotBuilt.
func Loaded() (Version, string, error) { return 0, "", ErrNotBuilt }

// Connect answers ErrNotBuilt.
func Connect(context.Context, Config) (*Communicator, error) { return nil, ErrNotBuilt }
