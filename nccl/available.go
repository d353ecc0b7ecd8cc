package nccl

// UnavailableError says why NCCL cannot be used.
type UnavailableError string

// ErrNotBuilt is the reason of a program that was built without the NCCL communicator.
const ErrNotBuilt UnavailableError = "this build contains no NCCL communicator"

// Error returns the reason with the name of the backend.
func (e UnavailableError) Error() string { return "nccl is unavailable: " + string(e) }

// Available returns nil if NCCL can be used, else an [UnavailableError].
func Available() error { return ErrNotBuilt }
