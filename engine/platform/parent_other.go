//go:build !linux

package platform

import "os"

// NotifyParentDeath sends a signal to c when the thread that started this process ends, which is usually the end of the
// parent process. The caller must check os.Getppid. On systems other than Linux nothing is sent.
func NotifyParentDeath(chan<- os.Signal) {}
