// Package diskwatch lists the disk operations of a process that have not returned yet.
//
//	w := new(diskwatch.Watch)
//	go w.Report(ctx, diskwatch.Reports{Silent: silent, Answers: answers})
//	end := w.Begin(path) // before an operation that may never return
//	err := file.Sync()
//	end()
//
// A file system that hangs, such as a network file system without its server, returns no error: a call waits until the
// file system answers. Only another goroutine can detect this, from the age of the operation. An operation must be
// small (a write of 1 MiB, a flush of 8 MiB). Otherwise, a slow disk could be mistaken for a disk that does not answer.
// The age of an operation does not include time in which the whole process was paused.
package diskwatch
