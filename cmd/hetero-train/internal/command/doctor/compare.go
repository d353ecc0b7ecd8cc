package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/nccl"
)

// clocks contains the offsets of the clocks of all ranks, as one rank measured them.
type clocks struct {
	Offsets []time.Duration // by rank: its clock minus the clock of rank 0
	Error   time.Duration   // largest possible error of an offset
}

// compare returns the findings about differences between the machines of a run. The list machines has one element per
// rank.
func compare(machines []machine, c clocks) []finding {
	first := &machines[0]
	f := &findings{of: first}
	hosts := map[string]bool{}
	for i := range machines {
		hosts[machines[i].HostID] = true
	}
	if len(hosts) == 1 {
		return nil
	}
	f.add("machines", good, "", "%d ranks on %d machines reach each other", len(machines), len(hosts))
	f.differ(machines, "program", fault, "install the same release on all machines",
		func(m *machine) string { return m.Program })
	f.differ(machines, "driver of GPUs", note, "install the same driver on all machines, if NCCL reports errors",
		func(m *machine) string {
			if len(m.GPUs) == 0 {
				return ""
			}
			return m.GPUs[0].Driver
		})
	f.differ(machines, "NCCL settings", warning, "set the same variables on all machines, except names of interfaces",
		func(m *machine) string {
			common := slices.DeleteFunc(slices.Clone(m.NCCL), func(s nccl.Setting) bool {
				return s.Name == "NCCL_SOCKET_IFNAME" || s.Name == "NCCL_IB_HCA" || s.Name == "NCCL_HOSTID"
			})
			return nccl.Settings(common).String()
		})
	f.differ(machines, "MTU", warning, "set one MTU on all machines of the network",
		func(m *machine) string { return largestMTU(m) })
	f.clocksDiffer(machines, c)
	return f.list
}

// differ adds a finding if a fact differs between ranks. It ignores ranks for which fact returns "".
func (f *findings) differ(machines []machine, check string, l level, cure string, fact func(*machine) string) {
	ranks := map[string][]string{} // names of the hosts with each value of the fact
	var order []string
	for i := range machines {
		value := fact(&machines[i])
		if value == "" {
			continue
		}
		if ranks[value] == nil {
			order = append(order, value)
		}
		if host := machines[i].Host.Name; !slices.Contains(ranks[value], host) {
			ranks[value] = append(ranks[value], host)
		}
	}
	if len(order) < 2 {
		return
	}
	var texts []string
	for _, value := range order {
		texts = append(texts, fmt.Sprintf("%s on %s", value, some(ranks[value])))
	}
	f.add(check, l, cure, "differs: %s", strings.Join(texts, "; "))
}

// some lists only the first names.
func some(names []string) string {
	const most = 3
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// largestMTU returns the largest MTU of the physical interfaces that are up. If there are none, it returns "".
func largestMTU(m *machine) string {
	largest := 0
	for _, n := range m.Host.Networks {
		if n.Up && n.Kind != "virtual" {
			largest = max(largest, n.MTU)
		}
	}
	if largest == 0 {
		return ""
	}
	return fmt.Sprint(largest)
}

// clocksApart is the largest difference of clocks that is not reported. With a larger difference, it is hard to compare
// the log times of several machines.
const clocksApart = time.Second

func (f *findings) clocksDiffer(machines []machine, c clocks) {
	worst := 0
	for rank, offset := range c.Offsets {
		if offset.Abs() > c.Offsets[worst].Abs() {
			worst = rank
		}
	}
	offset, accuracy := c.Offsets[worst], max(c.Error, time.Millisecond).Round(time.Millisecond)
	text := fmt.Sprintf("the clock of %s differs by %v from that of %s (± %v)", machines[worst].Host.Name,
		offset.Round(time.Millisecond), machines[0].Host.Name, accuracy)
	if offset.Abs()-c.Error > clocksApart {
		f.add("clocks", warning, "start a time service on all machines: certificates and times in logs depend on it", "%s", text)
		return
	}
	f.add("clocks", good, "", "%s", text)
}
