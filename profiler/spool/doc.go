// Package spool keeps records in memory until a disk accepts them, so that their producer never waits for the disk.
//
//	s := spool.Start(spool.Options{Every: time.Second, MostBytes: 4 << 20, Write: write, Sync: file.Sync, Close: file.Close})
//	s.Add(func(records []byte) []byte { return append(records, record...) })
//	…
//	err := s.Close()
//
// One goroutine may call Add; any goroutine may call the other methods. If the disk accepts nothing, records are lost
// only after twice MostBytes are waiting: [Spool.Dropped]. Flush, Sync and Close return the errors of Options.Write,
// Sync and Close.
package spool
