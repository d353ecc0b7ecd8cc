package hardware

import "fmt"

// LostError reports that a GPU no longer responds. The GPU has fallen off the bus or needs a reset.
type LostError struct {
	GPU    GPU
	Reason string // error text of the driver
}

func (e *LostError) Error() string {
	return fmt.Sprintf("GPU %d (%s, %s) is lost: %s", e.GPU.Index, e.GPU.Name, e.GPU.UUID, e.Reason)
}
