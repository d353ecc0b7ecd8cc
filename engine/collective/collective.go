package collective

import "context"

// Communicator is one rank's end of a group. See the package comment for who may call what when.
type Communicator interface {
	// Rank is from 0 to Size - 1.
	Rank() int
	Size() int
	// Enqueue queues op and returns. An op that is wrong by itself (Op.Check) is an error and is not queued; what ranks
	// disagree in is found when it runs. After a failure, or Close, nothing is queued and the error is that of Err.
	Enqueue(op Op) error
	// Sync waits until nothing is queued or running and returns Err, or the error of ctx if that ends first.
	Sync(ctx context.Context) error
	// Err is the first failure, nil if there was none. It stays.
	Err() error
	// Abort fails the communicator with ErrAborted and the cause, here, and with a PeerError that tells the cause on all
	// other ranks. What runs is given up within about 0.1 s. After a failure, or Close, it does nothing.
	Abort(cause error)
	// Close leaves the group and frees everything. It is orderly where nothing is queued; otherwise it is an Abort first,
	// and an error.
	Close() error
}

// Progress is how far a rank has come.
type Progress struct {
	Rank     int
	Entered  uint64 // operations begun since the communicator was made
	Finished uint64 // operations ended
	Last     string // the name of the last one it entered; "" before the first
}

// Watcher is implemented by communicators that know how far every rank has come; for watchdogs.
type Watcher interface {
	// Progress has one entry a rank. It may be called by any goroutine, until Close.
	Progress() []Progress
}

// Positioner is implemented by communicators that tell how far this rank has come; for status lines.
type Positioner interface {
	// Position may be called by any goroutine at any time.
	Position() Progress
}
