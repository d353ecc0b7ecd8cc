package compute

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/tensor"
	"github.com/hetero-train/hetero-train/profiler/precision"
)

// typeReport is the message that a rank sends for the choice of element types.
type typeReport struct {
	devices.RankType                    // Type is "" if the times in Seconds determine it
	Kept             bool               `json:"kept,omitempty"`    // true if an earlier run chose Type by timing
	Seconds          map[string]float64 `json:"seconds,omitempty"` // seconds per step, by element type
}

// SettlePrecision chooses the element type of every rank. The parameter before has the types in the checkpoint from
// which the run resumes; it may be nil.
func (k *Rank) SettlePrecision(ctx context.Context, before []devices.RankType) error {
	own, err := k.reportType(ctx, before)
	if err != nil {
		return err
	}
	reports, err := process.GatherAll(ctx, k.Team, "precision", "precision of rank", own)
	if err != nil {
		return err
	}
	rank := 0
	if k.Team != nil {
		rank = k.Team.Place.Rank
	}
	k.Types = agreeTypes(reports)
	if k.Precision, err = devices.DtypeOf(k.Types[rank].Type); err != nil {
		return err
	}
	if own.Seconds != nil {
		k.keepType(own)
	}
	k.logTypes()
	return nil
}

// reportType returns the first known element type of these: the configured type, that in the checkpoint, the only one
// for "auto" on this device, the cached type. Otherwise it times the possible types and returns their times.
func (k *Rank) reportType(ctx context.Context, before []devices.RankType) (typeReport, error) {
	o := typeReport{RankType: devices.RankType{Device: k.DescribeItself().DeviceType}}
	if k.Process.Cfg.Train.Precision != "auto" {
		o.Type = k.Precision.String() // OpenDevice has set it
		return o, nil
	}
	types, timed := devices.AutoTypes(k.Device.Info())
	if o.Type = devices.TypeBefore(before, o.Device, types); o.Type != "" {
		return o, nil
	}
	if o.Type = types[0].String(); !timed {
		return o, nil
	}
	kept, err := devices.KeptType(o.Device, types)
	if err != nil {
		k.Process.Opts.LogOf(logs.ComponentDevice).Warn(
			"the cached choice for train.precision = \"auto\" cannot be used; the run measures the number formats again",
			"error", err)
	}
	if kept != "" {
		o.Type, o.Kept = kept, true
		return o, nil
	}
	seconds, err := precision.Time(ctx, k.Device, types)
	if err != nil {
		return o, err
	}
	o.Type, o.Seconds = "", map[string]float64{}
	for i, dt := range types {
		o.Seconds[dt.String()] = seconds[i]
	}
	return o, nil
}

// agreeTypes chooses the element type of every rank. A configured type, a type from the checkpoint and an only possible
// type remain. Other ranks with equal devices get the same type. This is the cached choice of one of these ranks, or
// otherwise the fastest type according to the times of all of them.
func agreeTypes(reports []typeReport) []devices.RankType {
	agreed := make([]devices.RankType, len(reports))
	for rank, o := range reports {
		agreed[rank] = o.RankType
		if o.Type != "" && !o.Kept {
			continue
		}
		var kept string
		var times [][]float64
		for _, other := range reports {
			switch {
			case other.Device != o.Device:
			case other.Kept && kept == "":
				kept = other.Type
			case other.Seconds != nil:
				times = append(times, []float64{other.Seconds[devices.TimedTypes[0].String()],
					other.Seconds[devices.TimedTypes[1].String()]})
			}
		}
		if agreed[rank].Type = kept; kept == "" {
			agreed[rank].Type = devices.TimedTypes[precision.Fastest(times)].String()
		}
	}
	return agreed
}

// TypesKey is the key under which a checkpoint stores the element types of the ranks.
const TypesKey = "precision"

// TypesOf returns the element types in a checkpoint, by rank. It returns nil if the checkpoint contains no element
// types.
func TypesOf(state *checkpoint.State) (types []devices.RankType, err error) {
	raw, ok := state.Extra[TypesKey]
	if !ok {
		return nil, nil
	}
	if err := json.Unmarshal(raw, &types); err != nil {
		return nil,
			exit.With(exit.Data, fmt.Errorf("read the compute types in the checkpoint of step %d: %w", state.Step, err))
	}
	return types, nil
}

// ScalesLoss reports whether the run uses a loss scale. If one rank computes in f16, all ranks need a loss scale.
func (k *Rank) ScalesLoss() bool {
	return slices.ContainsFunc(k.Types, func(t devices.RankType) bool { return t.Type == tensor.F16.String() })
}

// keepType stores the element type that this rank has chosen by timing in the cache, and logs it.
func (k *Rank) keepType(own typeReport) {
	err := errors.New("there is no cache folder: neither XDG_CACHE_HOME nor HOME is set")
	if cache := devices.TypesCache(); cache != nil {
		err = cache.Store(devices.TypeCacheKey(own.Device),
			precision.Choice{Type: k.Precision.String(), Seconds: own.Seconds})
	}
	if err != nil {
		k.Process.Opts.LogOf(logs.ComponentDevice).Warn(
			"the choice for train.precision = \"auto\" is not cached, so each run measures again which format is faster",
			"error", err)
	}
	k.Process.Opts.LogOf(logs.ComponentDevice).Info(fmt.Sprintf("train.precision = \"auto\" selects %v on %s",
		k.Precision, own.Device), "timed", milliseconds(own.Seconds))
}

// milliseconds formats times as "bf16 8.1 ms, f32 15.2 ms".
func milliseconds(seconds map[string]float64) string {
	var texts []string
	for _, dt := range devices.TimedTypes {
		texts = append(texts, fmt.Sprintf("%v %.1f ms", dt, 1000*seconds[dt.String()]))
	}
	return strings.Join(texts, ", ")
}

// logTypes logs, on rank 0, the element types of the ranks if they differ.
func (k *Rank) logTypes() {
	if !k.Team.Leads() ||
		!slices.ContainsFunc(k.Types, func(t devices.RankType) bool { return t.Type != k.Types[0].Type }) {
		return
	}
	scale := ""
	if k.ScalesLoss() {
		scale = ", one loss scale"
	}
	k.Process.Opts.LogOf(logs.ComponentDevice).Info(
		fmt.Sprintf("ranks compute in different types: %s; all ranks have the same f32 parameters and gradients%s",
			TypesText(k.Types), scale))
}

// TypeSet returns the different element types, in ascending order.
func TypeSet(types []devices.RankType) []string {
	var set []string
	for _, t := range types {
		set = append(set, t.Type)
	}
	slices.Sort(set)
	return slices.Compact(set)
}

// TypesText returns a text such as "bf16". If the ranks differ, it returns a text such as "bf16 (ranks 0 to 2), f32
// (rank 3)".
func TypesText(types []devices.RankType) string {
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
