//go:build !cgo || !linux

package nccl

import (
	"context"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/nativelib"
)

// Communicator is one rank's endpoint. This program cannot create one.
type Communicator struct{ collective.Communicator }

// Available returns an error: this program was built without cgo, or for another system than Linux.
func Available() error { return UnavailableError(nativelib.Loadable().Error()) }

// Loaded returns the error of Available.
func Loaded() (Version, string, error) { return 0, "", Available() }

// Connect returns the error of Available.
func Connect(context.Context, Config) (*Communicator, error) { return nil, Available() }
