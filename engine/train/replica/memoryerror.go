package replica

import (
	"errors"
	"fmt"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/memory"
)

// MemoryError reports that the activations of a micro-batch do not fit into the memory of the device.
type MemoryError struct {
	Samples   int   // number of samples of the micro-batch
	Fit       int   // estimated number of samples that fit; 0 if not even one fits; or UnknownFit
	NeedBytes int64 // bytes of the activations
	HeldBytes int64 // bytes of parameters, optimizer state and other allocations on the device
	FreeBytes int64 // bytes of device memory that are free
	Err       error // error of the device, or of all ranks together

	Account *memory.Account // memory that the micro-batch needs; nil if the memory of the process is not known
	Model   bool            // the model alone does not fit, without activations
	// Together is set if the ranks together cannot hold a micro-batch. Samples is then a share that this rank cannot
	// hold, and Err states how much all ranks can hold.
	Together bool
}

// UnknownFit is the value of MemoryError.Fit if the number of samples that fit is unknown.
const UnknownFit = -1

func (e *MemoryError) Error() string {
	const gib = 1 << 30
	if e.Model {
		raise := "raise the limit"
		if more := e.Account.Raise(); more != "" {
			raise = more + "; activations need more: hetero-train plan names the least limit"
		}
		return fmt.Sprintf("the model without activations needs %s: no number of samples fits: use a smaller model, an optimizer with less state (optimizer.name), or %s",
			e.Account.Short(), raise)
	}
	if e.Together && e.Account == nil {
		return e.Err.Error()
	}
	if e.Together {
		holds, raise := "this rank holds at most", e.Account.Raise()
		if raise != "" {
			holds, raise = "the next start of this rank may hold only", "; "+raise
		}
		return fmt.Sprintf("%v; %s %d samples, and for %d it needs %s%s", e.Err, holds, e.Fit, e.Samples,
			e.Account.Short(), raise)
	}
	if e.Account != nil && !e.Account.Fits() {
		text := fmt.Sprintf("a micro-batch of %d samples needs %s", e.Samples, e.Account.Short())
		switch {
		case e.Fit > 0:
			text += fmt.Sprintf(": at most %d samples fit", e.Fit)
		case e.Fit == 0:
			text += ": no number of samples fits"
		}
		if raise := e.Account.Raise(); raise != "" {
			text += "; " + raise
		}
		return text
	}
	return fmt.Sprintf("activations of %d samples need %.2f GiB, but the device has only %.2f GiB left in addition to %.2f GiB of parameters and optimizer state: about %d samples fit",
		e.Samples,
		float64(e.NeedBytes)/gib, float64(e.FreeBytes)/gib, float64(e.HeldBytes)/gib, e.Fit)
}

// Unwrap returns Err.
func (e *MemoryError) Unwrap() error { return e.Err }

// Is makes every MemoryError a device.ErrOutOfMemory.
func (e *MemoryError) Is(target error) bool { return target == device.ErrOutOfMemory }

// tooLarge returns the error of a failed allocation of activations, with an explanation.
func tooLarge(dev device.Device, samples int, bytes int64, err error) error {
	if !errors.Is(err, device.ErrOutOfMemory) {
		return fmt.Errorf("replica: allocate %d bytes for activations: %w", bytes, err)
	}
	used, _ := dev.Memory()
	most := dev.Info().MemoryBytes
	if free := dev.Info().FreeBytes; free > 0 {
		most = free
	}
	e := &MemoryError{Samples: samples, NeedBytes: bytes, HeldBytes: used, FreeBytes: max(most-used, 0), Err: err}
	e.Fit = int(float64(e.FreeBytes) / float64(bytes) * float64(e.Samples)) // activations grow linearly
	return e
}
