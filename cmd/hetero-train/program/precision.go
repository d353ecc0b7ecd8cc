package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/tensor"
	"github.com/hetero-train/hetero-train/profiler/precision"
)

// precisionFor resolves train.precision for a device, "auto" without timing.
func precisionFor(name string, info device.Info) (tensor.DType, error) {
	switch {
	case name == "auto":
		types, _ := autoTypes(info)
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

// autoTypes are the types that train.precision = "auto" may take on a device. The first is the default; where timed is true it is the fastest one. The
// others of a GPU are only for runs that were begun in them: NVIDIA documents bf16 from sm_80 on to be as fast as fp16, and below it to be slow.
func autoTypes(info device.Info) (types []tensor.DType, timed bool) {
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

// rankType is the type in which a rank computes. Checkpoints keep a list of them, by rank.
type rankType struct {
	Device string `json:"device"` // its type: hardware.Identity.Type
	Type   string `json:"type"`   // "" until the ranks have agreed
}

// typeOffer is a rank's message for the choice of types.
type typeOffer struct {
	rankType                    // Type is "" where Seconds decide
	Kept     bool               `json:"kept,omitempty"`    // Type was found by timing in an earlier run
	Seconds  map[string]float64 `json:"seconds,omitempty"` // of a step, by type
}

// agreePrecision settles the type of every rank of a training run. With train.precision = "auto" a run that goes on keeps the types of its checkpoint.
func (j *training) agreePrecision(ctx context.Context) error {
	var before []rankType
	if j.cfg.Train.Precision == "auto" {
		find := func() error {
			state, err := experiment.Peek(j.runOptions())
			if err != nil {
				return nil // there is none, or opening the run says what is wrong with it
			}
			before, err = typesOf(&state)
			return err
		}
		var err error
		if j.team == nil {
			err = find()
		} else {
			err = j.team.tell(ctx, "types of the checkpoint", &before, find)
		}
		if err != nil {
			return err
		}
	}
	return j.settlePrecision(ctx, before)
}

// settlePrecision settles the type of this process and, where it is one of several ranks, of all of them. before are the types that a checkpoint was
// trained in.
func (j *Rank) settlePrecision(ctx context.Context, before []rankType) error {
	own, err := j.offerType(ctx, before)
	if err != nil {
		return err
	}
	offers, rank := []typeOffer{own}, 0
	if j.team != nil {
		rank = j.team.place.Rank
		word, err := json.Marshal(own)
		if err != nil {
			return err
		}
		words, err := j.team.group.Gather(ctx, "precision", word)
		if err != nil {
			return err
		}
		offers = make([]typeOffer, len(words))
		for r, w := range words {
			if err := json.Unmarshal(w, &offers[r]); err != nil {
				return fmt.Errorf("precision of rank %d: %w", r, err)
			}
		}
	}
	j.types = agreeTypes(offers)
	if j.precision, err = dtypeOf(j.types[rank].Type); err != nil {
		return err
	}
	if own.Seconds != nil {
		j.keepType(own)
	}
	j.sayTypes()
	return nil
}

// offerType finds the type of this rank's device: the one that is set, that of the checkpoint, that of an earlier timing, or else the times of all that
// come into question.
func (j *Rank) offerType(ctx context.Context, before []rankType) (typeOffer, error) {
	o := typeOffer{rankType: rankType{Device: j.describeItself().DeviceType}}
	if j.cfg.Train.Precision != "auto" {
		o.Type = j.precision.String() // as openDevice has resolved it
		return o, nil
	}
	types, timed := autoTypes(j.device.Info())
	if o.Type = typeBefore(before, o.Device, types); o.Type != "" {
		return o, nil
	}
	if o.Type = types[0].String(); !timed {
		return o, nil
	}
	kept, err := keptType(o.Device, types)
	if err != nil {
		j.opts.logOf(logs.ComponentDevice).Warn("the cached choice for train.precision = \"auto\" cannot be used: the types are timed again", "error", err)
	}
	if kept != "" {
		o.Type, o.Kept = kept, true
		return o, nil
	}
	seconds, err := precision.Time(ctx, j.device, types)
	if err != nil {
		return o, err
	}
	o.Type, o.Seconds = "", map[string]float64{}
	for i, dt := range types {
		o.Seconds[dt.String()] = seconds[i]
	}
	return o, nil
}

// agreeTypes gives every rank its type. Ranks with equal devices get the same one: the cached choice of one of them, else the fastest type over all
// of them.
func agreeTypes(offers []typeOffer) []rankType {
	agreed := make([]rankType, len(offers))
	for rank, o := range offers {
		agreed[rank] = o.rankType
		if o.Type != "" && !o.Kept {
			continue
		}
		var kept string
		var times [][]float64
		for _, other := range offers {
			switch {
			case other.Device != o.Device:
			case other.Kept && kept == "":
				kept = other.Type
			case other.Seconds != nil:
				times = append(times, []float64{other.Seconds[timedTypes[0].String()], other.Seconds[timedTypes[1].String()]})
			}
		}
		if agreed[rank].Type = kept; kept == "" {
			agreed[rank].Type = timedTypes[precision.Fastest(times)].String()
		}
	}
	return agreed
}

// timedTypes are those between which timing decides.
var timedTypes = [...]tensor.DType{tensor.BF16, tensor.F32}

// typeBefore is the type that a checkpoint was trained in on such a device, or else the first of its types that is among types; "" where there is none.
func typeBefore(before []rankType, device string, types []tensor.DType) string {
	possible := func(b rankType) bool {
		return slices.ContainsFunc(types, func(dt tensor.DType) bool { return dt.String() == b.Type })
	}
	at := slices.IndexFunc(before, func(b rankType) bool { return b.Device == device && possible(b) })
	if at < 0 {
		at = slices.IndexFunc(before, possible)
	}
	if at < 0 {
		return ""
	}
	return before[at].Type
}

// typesKey is where a checkpoint keeps the type of each rank.
const typesKey = "precision"

// typesOf are the types that a checkpoint was trained in, by rank; nil where it does not say.
func typesOf(state *checkpoint.State) (types []rankType, err error) {
	raw, ok := state.Extra[typesKey]
	if !ok {
		return nil, nil
	}
	if err := json.Unmarshal(raw, &types); err != nil {
		return nil, exit.With(exit.Data, fmt.Errorf("checkpoint of step %d: types in which it was trained: %w", state.Step, err))
	}
	return types, nil
}

// dtypeOf is the inverse of DType.String for the types of activations.
func dtypeOf(name string) (tensor.DType, error) {
	for _, dt := range []tensor.DType{tensor.F32, tensor.BF16, tensor.F16} {
		if dt.String() == name {
			return dt, nil
		}
	}
	return tensor.Invalid, fmt.Errorf("type of activations: got %q, want f32, bf16 or f16", name)
}

// scalesLoss reports whether some rank computes in f16: then all ranks share a loss scale.
func (j *Rank) scalesLoss() bool {
	return slices.ContainsFunc(j.types, func(t rankType) bool { return t.Type == tensor.F16.String() })
}

// typesCache is where choices of earlier timings are, nil where this user has no cache folder.
func typesCache() *precision.Cache {
	dir, err := parts.UserCache("precision")
	if err != nil {
		return nil
	}
	return precision.Open(dir)
}

// typeCacheKey is everything that a timing depends on.
func typeCacheKey(device string) string { return device + "; " + version.Text() }

// keptType is the choice of an earlier timing among types, "" where there is none.
func keptType(device string, types []tensor.DType) (string, error) {
	cache := typesCache()
	if cache == nil {
		return "", nil
	}
	choice, err := cache.Load(typeCacheKey(device))
	return typeBefore([]rankType{{device, choice.Type}}, device, types), err
}

// keepType leaves the type that this rank's timing has led to for later runs.
func (j *Rank) keepType(own typeOffer) {
	err := errors.New("there is no cache folder: neither XDG_CACHE_HOME nor HOME is set")
	if cache := typesCache(); cache != nil {
		err = cache.Store(typeCacheKey(own.Device), precision.Choice{Type: j.precision.String(), Seconds: own.Seconds})
	}
	if err != nil {
		j.opts.logOf(logs.ComponentDevice).Warn("the choice for train.precision = \"auto\" is not cached: each new run times the types again", "error", err)
	}
	j.opts.logOf(logs.ComponentDevice).Info(fmt.Sprintf("train.precision = \"auto\" takes %v on %s", j.precision, own.Device), "timed", milliseconds(own.Seconds))
}

// milliseconds is "bf16 8.1 ms, f32 15.2 ms".
func milliseconds(seconds map[string]float64) string {
	var texts []string
	for _, dt := range timedTypes {
		texts = append(texts, fmt.Sprintf("%v %.1f ms", dt, 1000*seconds[dt.String()]))
	}
	return strings.Join(texts, ", ")
}

// sayTypes tells, on rank 0, that ranks compute in different types.
func (j *Rank) sayTypes() {
	if !j.team.leads() || !slices.ContainsFunc(j.types, func(t rankType) bool { return t.Type != j.types[0].Type }) {
		return
	}
	scale := ""
	if j.scalesLoss() {
		scale = ", one loss scale"
	}
	j.opts.logOf(logs.ComponentDevice).Info(fmt.Sprintf("ranks compute in different types: %s; all have the same f32 parameters and gradients%s", typesText(j.types), scale))
}

// sayTypesBefore warns where a run resumes in other types than those of its checkpoint, for instance on another machine.
func (j *Run) sayTypesBefore(state *checkpoint.State) error {
	before, err := typesOf(state)
	if err != nil || before == nil {
		return err
	}
	if was, now := typeSet(before), typeSet(j.types); !slices.Equal(was, now) && j.cfg.Train.Precision == "auto" {
		j.opts.logOf(logs.ComponentDevice).Warn(fmt.Sprintf("the checkpoint was trained in %s, the run continues in %s: train.precision sets one type", strings.Join(was, " and "), strings.Join(now, " and ")))
	}
	return nil
}

// typeSet are the different types, ascending.
func typeSet(types []rankType) []string {
	var set []string
	for _, t := range types {
		set = append(set, t.Type)
	}
	slices.Sort(set)
	return slices.Compact(set)
}

// typesText is "bf16", or "bf16 (ranks 0 to 2), f32 (rank 3)" where ranks differ.
func typesText(types []rankType) string {
	var names []string
	ranks := map[string][]int{}
	for rank, t := range types {
		if ranks[t.Type] == nil {
			names = append(names, t.Type)
		}
		ranks[t.Type] = append(ranks[t.Type], rank)
	}
	if len(names) == 1 {
		return names[0]
	}
	for i, name := range names {
		names[i] = fmt.Sprintf("%s (%s)", name, rendezvous.RankList(ranks[name], len(ranks[name])))
	}
	return strings.Join(names, ", ")
}
