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

// Precision resolves train.precision for a device, with "auto" but without timing.
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

// AutoTypes returns the types that train.precision = "auto" may select on a device. The first is the default; if timed
// is true, the fastest is selected. On a GPU, the other types are only for runs that began in them: NVIDIA documents
// that bf16 is as fast as fp16 from sm_80 on, and slow below.
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

// RankType is the type in which a rank computes. Checkpoints contain these types, by rank.
type RankType struct {
	Device string `json:"device"` // type of the device: hardware.Identity.Type
	Type   string `json:"type"`   // "" until the ranks have agreed
}

// TimedTypes returns the types that are chosen by timing.
var TimedTypes = [...]tensor.DType{tensor.BF16, tensor.F32}

// TypeBefore returns the type of a checkpoint's training on such a device, otherwise the first type of the checkpoint
// that is in types, otherwise "".
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

// DtypeOf is the inverse of DType.String for the types of activations.
func DtypeOf(name string) (tensor.DType, error) {
	for _, dt := range []tensor.DType{tensor.F32, tensor.BF16, tensor.F16} {
		if dt.String() == name {
			return dt, nil
		}
	}
	return tensor.Invalid, fmt.Errorf("type of activations: got %q, want f32, bf16 or f16", name)
}

// TypesCache is the cache of earlier timings; nil if the user has no cache folder.
func TypesCache() *precision.Cache {
	dir, err := parts.UserCache("precision")
	if err != nil {
		return nil
	}
	return precision.Open(dir)
}

// TypeCacheKey has all values that a timing depends on.
func TypeCacheKey(device string) string { return device + "; " + version.Text() }

// KeptType returns the choice among types that an earlier timing made, "" if there is none.
func KeptType(device string, types []tensor.DType) (string, error) {
	cache := TypesCache()
	if cache == nil {
		return "", nil
	}
	choice, err := cache.Load(TypeCacheKey(device))
	return TypeBefore([]RankType{{device, choice.Type}}, device, types), err
}
