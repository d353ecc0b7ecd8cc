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

// Precision resolves train.precision for a device, "auto" without timing.
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

// AutoTypes are the types that train.precision = "auto" may take on a device. The first is the default; where timed is true it is the fastest one. The
// others of a GPU are only for runs that were begun in them: NVIDIA documents bf16 from sm_80 on to be as fast as fp16, and below it to be slow.
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

// RankType is the type in which a rank computes. Checkpoints keep a list of them, by rank.
type RankType struct {
	Device string `json:"device"` // its type: hardware.Identity.Type
	Type   string `json:"type"`   // "" until the ranks have agreed
}

// TimedTypes are those between which timing decides.
var TimedTypes = [...]tensor.DType{tensor.BF16, tensor.F32}

// TypeBefore is the type that a checkpoint was trained in on such a device, or else the first of its types that is among types; "" where there is none.
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

// TypesCache is where choices of earlier timings are, nil where this user has no cache folder.
func TypesCache() *precision.Cache {
	dir, err := parts.UserCache("precision")
	if err != nil {
		return nil
	}
	return precision.Open(dir)
}

// TypeCacheKey is everything that a timing depends on.
func TypeCacheKey(device string) string { return device + "; " + version.Text() }

// KeptType is the choice of an earlier timing among types, "" where there is none.
func KeptType(device string, types []tensor.DType) (string, error) {
	cache := TypesCache()
	if cache == nil {
		return "", nil
	}
	choice, err := cache.Load(TypeCacheKey(device))
	return TypeBefore([]RankType{{device, choice.Type}}, device, types), err
}
