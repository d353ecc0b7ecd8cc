package devices

import (
	"fmt"
	"slices"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
	"github.com/hetero-train/hetero-train/profiler/precision"
)

// Precision returns the element type that a value of train.precision selects on a device. For "auto", it returns the
// type that a run uses if nothing was timed.
func Precision(name string, info device.Info) (tensor.DType, error) {
	switch {
	case name == "auto":
		types, _ := AutoTypes(info)
		return types[0], nil
	case name == "bf16":
		return tensor.BF16, nil
	case name == "fp16" && (info.Kind == "cuda" || info.Kind == "reference"):
		return tensor.F16, nil
	case name == "f32":
		return tensor.F32, nil
	}
	return tensor.Invalid, exit.Usagef("train.precision: device %s cannot compute in %q", info.Name, name)
}

// AutoTypes returns the element types that train.precision = "auto" may select on a device. The first type is the
// default. If timed is true, the run must time the types to select the fastest. On a GPU, a type after the first is
// only for resumed runs that began with this type. According to NVIDIA, bf16 is as fast as fp16 on GPUs with compute
// capability 8.0 or higher, and slow on older GPUs.
func AutoTypes(info device.Info) (types []tensor.DType, timed bool) {
	switch {
	case info.Kind == "cuda" && info.FastBF16:
		return []tensor.DType{tensor.BF16, tensor.F16}, false
	case info.Kind == "cuda":
		return []tensor.DType{tensor.F16}, false
	case info.FastBF16 && info.Modelled:
		return []tensor.DType{tensor.BF16}, false
	case info.FastBF16:
		return []tensor.DType{tensor.BF16, tensor.F32}, true
	}
	return []tensor.DType{tensor.F32}, false
}

// RankType is the element type in which a rank computes. Checkpoints contain these values, by rank.
type RankType struct {
	Device string `json:"device"` // type of the device (hardware.Identity.Type)
	Type   string `json:"type"`   // element type; "" until the ranks have agreed
}

// TimedTypes are the element types among which a timing selects.
var TimedTypes = [...]tensor.DType{tensor.BF16, tensor.F32}

// TypeBefore returns the element type that a checkpoint contains for this type of device. If there is none, it returns
// the first type in the checkpoint that types contains, otherwise "".
func TypeBefore(before []RankType, device string, types []tensor.DType) string {
	possible := func(b RankType) bool {
		return slices.ContainsFunc(types, func(dt tensor.DType) bool { return dt.String() == b.Type })
	}
	at := slices.IndexFunc(before, func(b RankType) bool { return b.Device == device && possible(b) })
	if at < 0 {
		at = slices.IndexFunc(before, possible)
	}
	if at < 0 {
		return ""
	}
	return before[at].Type
}

// DtypeOf returns the element type of activations with this name. It is the inverse of DType.String.
func DtypeOf(name string) (tensor.DType, error) {
	for _, dt := range []tensor.DType{tensor.F32, tensor.BF16, tensor.F16} {
		if dt.String() == name {
			return dt, nil
		}
	}
	return tensor.Invalid, fmt.Errorf("type of activations: got %q, want f32, bf16 or f16", name)
}

// TypesCache returns the cache of earlier timings, or nil if the user has no cache folder.
func TypesCache() *precision.Cache {
	dir, err := parts.UserCache("precision")
	if err != nil {
		return nil
	}
	return precision.Open(dir)
}

// TypeCacheKey returns the key of a timing in the cache. The key contains all values on which the timing depends.
func TypeCacheKey(device string) string { return device + "; " + version.Text() }

// KeptType returns the cached choice of an earlier timing if types contains it, otherwise "".
func KeptType(device string, types []tensor.DType) (string, error) {
	cache := TypesCache()
	if cache == nil {
		return "", nil
	}
	choice, err := cache.Load(TypeCacheKey(device))
	return TypeBefore([]RankType{{device, choice.Type}}, device, types), err
}
