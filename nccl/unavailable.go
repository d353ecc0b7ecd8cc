//go:build !cgo || !linux

package nccl

import (
	"context"

	"github.com/hetero-train/hetero-train/engine/collective"
)

// Communicator is one rank's endpoint. This program cannot create one.
type Communicator struct{ collective.Communicator }

// Available returns an error: this program was built without cgo, or for another system than Linux.
func Available() error { return ErrNotBuilt }

// Loaded returns ErrNotBuilt.
func Loaded() (Version, string, error) { return 0, "", ErrNotBuilt }

// Connect returns ErrNotBuilt.
func Connect(context.Context, Config) (*Communicator, error) { return nil, ErrNotBuilt }
