package prometheus

import (
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// linkMetrics are the metrics of a group of links. Their names and labels follow those of node_exporter.
type linkMetrics struct {
	kinds                 []telemetry.LinkKind
	what                  string // name of the links in help texts
	sent, received, limit string // names of the metrics without the prefix
}

var linkGroups = []linkMetrics{
	{[]telemetry.LinkKind{telemetry.LinkNetwork, telemetry.LinkVirtual, telemetry.LinkLoopback},
		"the network interface",
		"network_transmit_bytes_total", "network_receive_bytes_total", "network_speed_bytes"},
	{[]telemetry.LinkKind{telemetry.LinkRDMA}, "the RDMA port",
		"infiniband_port_data_transmitted_bytes_total", "infiniband_port_data_received_bytes_total",
		"infiniband_rate_bytes_per_second"},
	{[]telemetry.LinkKind{telemetry.LinkNVLink}, "the GPU's NVLink connections",
		"nvlink_transmit_bytes_total", "nvlink_receive_bytes_total", "nvlink_speed_bytes"},
	{[]telemetry.LinkKind{telemetry.LinkPCIe}, "the GPU's PCIe connection",
		"pcie_transmit_bytes_total", "pcie_receive_bytes_total", "pcie_speed_bytes"},
}

// writeLinks writes the counters and the limits of all links, and the values that are computed from bytes and time.
func (m *Metrics) writeLinks(t *text, s *State) {
	for _, g := range linkGroups {
		m.writeLink(t, s, g, g.sent, "counter",
			"Bytes that "+g.what+" has sent since the first measurement of this process.",
			func(_ telemetry.Link, v telemetry.Traffic) float64 { return v.SentBytes })
		m.writeLink(t, s, g, g.received, "counter",
			"Bytes that "+g.what+" has received since the first measurement of this process.",
			func(_ telemetry.Link, v telemetry.Traffic) float64 { return v.ReceivedBytes })
		m.writeLink(t, s, g, g.limit, "gauge", "Largest bytes per second of "+g.what+" in each direction.",
			func(l telemetry.Link, _ telemetry.Traffic) float64 {
				if l.Limit == 0 {
					return nan
				}
				return l.Limit
			})
	}
	if s.Steps == 0 || !m.communicates(s) {
		return
	}
	each := func(name, kind, help string, value func(*RankState) float64, labels ...label) {
		t.family(name, kind, help)
		for i := range s.Ranks {
			if v := value(&s.Ranks[i]); v == v {
				t.sample(v, append([]label{{"rank", m.numbers[i]}}, labels...)...)
			}
		}
	}
	each("hetero_train_rank_communication_bytes_total", "counter", "Bytes of gradients that were summed over ranks.",
		func(r *RankState) float64 { return float64(r.Bytes) })
	each("hetero_train_rank_hidden_communication_seconds_total", "counter",
		"Time of the communication of gradients during the backward pass.", func(r *RankState) float64 {
			return r.Hidden
		})
	each("hetero_train_rank_bus_bytes_per_second", "gauge",
		"Bytes per second and link of the all-reduces of the last step, computed from bytes and time, not counted.",
		func(r *RankState) float64 { return r.Bus }, label{"basis", string(telemetry.BasisComputed)})
}

// communicates reports whether any gradients were summed over ranks.
func (m *Metrics) communicates(s *State) bool {
	for i := range s.Ranks {
		if s.Ranks[i].Bytes > 0 {
			return true
		}
	}
	return false
}

// writeLink writes the known values of one metric of a group.
func (m *Metrics) writeLink(t *text, s *State, g linkMetrics, name, kind, help string,
	value func(telemetry.Link, telemetry.Traffic) float64) {
	begun := false
	for i, r := range m.run.Ranks {
		for j, l := range r.Links {
			v := value(l, s.Ranks[i].Links[j])
			if v != v || !slices.Contains(g.kinds, l.Kind) { // NaN: unknown
				continue
			}
			if !begun {
				begun = true
				t.family("hetero_train_"+name, kind, help)
			}
			labels := []label{{"rank", m.numbers[i]}, {"device", l.Name}}
			if l.Kind == telemetry.LinkRDMA {
				device, port, _ := strings.Cut(l.Name, "/")
				labels = []label{{"rank", m.numbers[i]}, {"device", device}, {"port", port}}
			}
			t.sample(v, labels...)
		}
	}
}
