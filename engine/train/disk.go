package train

// Disk is the queue in which records of the Observer wait for the disk of rank 0. Its methods do not wait.
type Disk interface {
	// Full reports whether the memory for waiting records is full. Training must then wait, too.
	Full() bool
	// Written returns a channel that is closed after all records so far have been written.
	Written() <-chan struct{}
	// Waits is called when training begins to wait for the disk, or to use it itself. The argument names the data.
	// Training calls the result when it continues.
	Waits(what string) (end func())
}

// noDisk is the Disk of a run in which no record waits.
type noDisk struct{}

var nothingWaits = func() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}()

// Full implements Disk.
func (noDisk) Full() bool { return false }

// Written implements Disk.
func (noDisk) Written() <-chan struct{} { return nothingWaits }

// Waits implements Disk.
func (noDisk) Waits(string) (end func()) { return func() {} }
