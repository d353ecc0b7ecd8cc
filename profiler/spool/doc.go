// Package spool keeps records in memory until a disk accepts them. The goroutine that adds records therefore never
// waits for the disk.
//
//	s := spool.Start(spool.Options{Every: time.Second, MostBytes: 4 << 20, Write: write, Sync: file.Sync, Close: file.Close})
//	s.Add(func(records []byte) []byte { return append(records, record...) })
//	…
//	err := s.Close()
//
// One goroutine may call Add; any goroutine may call the other methods. If the disk accepts nothing, up to twice
// MostBytes wait in memory. Later records are lost, and [Spool.Dropped] counts them. The methods Flush, Sync and Close
// return the errors of the functions Write, Sync and Close in Options.
package spool
