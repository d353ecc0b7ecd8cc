// Package spool keeps records in memory until they can be written to disk. The goroutine that adds records therefore
// never waits for the disk.
//
//	s := spool.Start(spool.Options{Every: time.Second, MostBytes: 4 << 20, Write: write, Sync: file.Sync, Close: file.Close})
//	s.Add(func(records []byte) []byte { return append(records, record...) })
//	…
//	err := s.Close()
//
// Only one goroutine may call Add. All other methods are safe for concurrent use. If the disk accepts no records, up
// to twice MostBytes wait in memory. Later records are lost, and [Spool.Dropped] counts them. Flush, Sync and Close
// return the errors of the functions Write, Sync and Close in Options.
package spool
