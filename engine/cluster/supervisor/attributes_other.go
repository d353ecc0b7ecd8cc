//go:build unix && !linux

package supervisor

import "syscall"

// attributes returns the attributes of a rank's process: its own process group. Only Linux can send the rank a signal
// when its supervisor ends.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// awaitExit does nothing: on other systems Wait also frees the process id.
func awaitExit(int) {}

// preferVictim does nothing: only Linux has oom_score_adj.
func preferVictim(int) error { return nil }
