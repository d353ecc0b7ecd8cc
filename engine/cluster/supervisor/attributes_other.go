//go:build unix && !linux

package supervisor

import "syscall"

// attributes returns the attributes of a rank's process. The rank has its own process group. Only on Linux does it also
// get a signal when its supervisor ends.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// awaitExit does nothing: only Linux can wait for a child without freeing its process id.
func awaitExit(int) {}

// preferVictim does nothing: only Linux has oom_score_adj.
func preferVictim(int) error { return nil }
