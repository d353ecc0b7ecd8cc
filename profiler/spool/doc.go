// Package spool keeps records in memory until they can be written to disk. The goroutine that adds records therefore
// never waits for the disk.
//
//	s := spool.Start(spool.Options{Every: time.Second, MostBytes: 4 << 20, Write: write, Sync: file.Sync, Close: file.Close})
//	s.Add(func(records []byte) []byte { return append(records, record...) })
//	…
//	err := s.Close()
//
// Only one goroutine may call Add. All other methods are safe for concurrent use. If writes fail, for example because
// the disk is full, records of up to twice MostBytes wait in memory. Further records are lost, and [Spool.Dropped]
// counts them. Flush, Sync and Close return the errors of the functions Write, Sync and Close in Options.
//
// The files of a run share a [Queue], which performs all disk operations on one goroutine. If the disk does not answer,
// a Spool with a Queue loses no record: the Queue becomes full, and the caller must wait before it adds more records.
package spool
