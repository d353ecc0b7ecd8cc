package collective

import "context"

// Communicator is one rank's endpoint in a group. The package comment states which of its methods are safe for
// concurrent use.
type Communicator interface {
	// Rank is this rank's number, from 0 to Size - 1.
	Rank() int
	Size() int
	// Enqueue queues op and returns immediately. If op is invalid (see Op.Check), it returns an error and queues
	// nothing. The communicator compares op with the operations of other ranks only when op runs. After a failure or
	// Close, Enqueue queues nothing and returns the error of Err.
	Enqueue(op Op) error
	// Sync waits until no operation is queued or running, and then returns the result of Err. If ctx ends first, Sync
	// returns the error of ctx.
	Sync(ctx context.Context) error
	// Err returns the first failure, or nil. After the first failure, the result never changes.
	Err() error
	// Abort fails this communicator with ErrAborted and the cause, and all other ranks with a PeerError that contains
	// the cause. A running operation ends within about 0.1 s. After a failure or Close, Abort does nothing.
	Abort(cause error)
	// Close leaves the group and frees all resources. If operations are still queued, Close aborts first and returns an
	// error.
	Close() error
}

// Progress is the state of one rank's operations.
type Progress struct {
	Rank     int
	Entered  uint64 // operations started since the communicator was created
	Finished uint64 // operations that have ended
	Last     string // name of the last operation that the rank entered; "" before the first
}

// Watcher is implemented by communicators that know the progress of every rank. Watchdogs report this progress.
type Watcher interface {
	// Progress returns one entry per rank. It is safe for concurrent use until Close.
	Progress() []Progress
}

// Positioner is implemented by communicators that know the progress of this rank. Status lines show this progress.
type Positioner interface {
	// Position returns the progress of this rank. It is always safe for concurrent use.
	Position() Progress
}
