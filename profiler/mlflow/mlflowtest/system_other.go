//go:build !linux

package mlflowtest

import "os/exec"

func diesWithTest(*exec.Cmd) {}
