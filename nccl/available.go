package nccl

// UnavailableError is the reason why NCCL cannot be used.
type UnavailableError string

// ErrNotBuilt is the error of a program that was built without cgo, or for another system than Linux.
const ErrNotBuilt UnavailableError = "this program was built without cgo or for another system than Linux"

// Error returns the reason with the name of the backend.
func (e UnavailableError) Error() string { return "nccl is unavailable: " + string(e) }
