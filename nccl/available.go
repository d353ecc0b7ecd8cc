package nccl

// UnavailableError is the reason why NCCL cannot be used.
type UnavailableError string

// Error returns the reason with the name of the backend.
func (e UnavailableError) Error() string { return "nccl is unavailable: " + string(e) }
