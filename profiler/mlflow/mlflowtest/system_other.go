//go:build !linux

package mlflowtest

import (
	"os/exec"

	"github.com/hetero-train/hetero-train/engine/platform"
)

// diesWithTest puts a command into its own process group. Only Linux can end it with the test.
func diesWithTest(cmd *exec.Cmd) { platform.OwnGroup(cmd) }
