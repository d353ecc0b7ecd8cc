// Package spool keeps records in memory until a disk takes them, so that whoever makes them never waits for one.
//
//	s := spool.Start(spool.Options{Every: time.Second, MostBytes: 4 << 20, Write: write, Sync: file.Sync, Close: file.Close})
//	s.Add(func(records []byte) []byte { return append(records, record...) })
//	…
//	err := s.Close()
//
// Add may be called by one goroutine, all else by any. A disk that takes nothing loses records only once twice MostBytes are waiting: [Spool.Dropped].
package spool
