package status

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/profiler/runs"
)

// Limits of the lines about memory.
const (
	mostMemory = 4 // largest number of ranks if the number of lines is limited
	mostPlans  = 4 // largest number of different plans otherwise
)

// ranksWithMemory returns the number of ranks for which the run records the memory.
func ranksWithMemory(v runs.View) (n int) {
	for _, k := range v.Ranks {
		if k.Memory != nil {
			n++
		}
	}
	return n
}

// memoryOf returns a line for each rank for which the run records the memory. If there are more than limit such ranks,
// it selects those that are nearest to their memory limits.
func memoryOf(v runs.View, limit int) (lines []string) {
	known := slices.DeleteFunc(slices.Clone(v.Ranks), func(k runs.RankView) bool { return k.Memory == nil })
	left := len(known) - limit
	if left > 0 {
		slices.SortStableFunc(known, func(a, b runs.RankView) int {
			return cmp.Compare(filled(b.Memory), filled(a.Memory))
		})
		known = known[:limit]
	}
	for _, k := range known {
		lines = append(lines, fmt.Sprintf("memory of rank %d: %s", k.Rank, memoryText(k.Memory)))
	}
	if left > 0 {
		lines = append(lines, fmt.Sprintf("… memory of %s more: --json", show.Count(left, "rank")))
	}
	return lines
}

// filled returns the fraction of its memory limit that a rank uses or plans to use, whichever is larger. If the device
// has its own memory, the result is the larger of the fractions for both memories. A memory with an unknown limit is
// ignored.
func filled(m *runs.MemoryView) (fraction float64) {
	if m.Limit > 0 {
		fraction = float64(max(m.Used, m.HostBytes)) / float64(m.Limit)
	}
	if !m.Unified && m.DeviceLimit > 0 {
		fraction = max(fraction, float64(m.DeviceBytes)/float64(m.DeviceLimit))
	}
	return fraction
}

// memoryText describes the measured use of a rank, its plan and its limit.
func memoryText(m *runs.MemoryView) string {
	used := ""
	switch {
	case m.UsedAtLeast:
		used = fmt.Sprintf("resident at least %s, ", memory.Size(m.Used))
	case m.Used > 0:
		used = fmt.Sprintf("resident %s, ", memory.Size(m.Used))
	}
	text := fmt.Sprintf("%splanned %s, limit %s", used, memory.Size(m.HostBytes), limitText(m.Limit))
	if !m.Unified {
		text += fmt.Sprintf("; device: planned %s, limit %s", memory.Size(m.DeviceBytes), limitText(m.DeviceLimit))
	}
	if m.ImageDecoders > 0 {
		text += fmt.Sprintf("; image decoders at most %s", memory.Size(m.ImageDecoders))
	}
	return text
}

func limitText(bytes int64) string {
	if bytes == 0 {
		return "unknown"
	}
	return memory.Size(bytes)
}

// plansOf returns a line for each different memory plan. The line contains the parts of the plan, in the format of
// command plan, and the source of the limit.
func plansOf(v runs.View) (lines []string) {
	seen, left := map[string]bool{}, 0
	for _, k := range v.Ranks {
		m := k.Memory
		if m == nil {
			continue
		}
		a := memory.Account{Samples: m.Samples, Unified: m.Unified, Device: m.Device, Host: m.Host}
		text := fmt.Sprintf("with %s: %s", show.Count(m.Samples, "sample"), a)
		if m.LimitSource != "" {
			text += "; the limit is from " + m.LimitSource
		}
		if seen[text] {
			continue
		}
		seen[text] = true
		if len(lines) == mostPlans {
			left++
			continue
		}
		lines = append(lines, fmt.Sprintf("plan of rank %d %s", k.Rank, text))
	}
	if left > 0 {
		lines = append(lines, fmt.Sprintf("… %s more: --json", show.Count(left, "different plan")))
	}
	return lines
}
