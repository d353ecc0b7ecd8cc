package telemetry

import "math"

// LinkKind is the kind of a link.
type LinkKind string

// Kinds of links. The kind determines the sensors to which the traffic of a link is added; see PutTraffic.
const (
	LinkNVLink   LinkKind = "nvlink"   // NVLink connections of a GPU
	LinkPCIe     LinkKind = "pcie"     // PCIe connection of a GPU
	LinkNetwork  LinkKind = "network"  // interface that connects the machine or the container with others
	LinkRDMA     LinkKind = "rdma"     // port of an RDMA device: InfiniBand or RoCE
	LinkVirtual  LinkKind = "virtual"  // interface whose traffic stays in the machine, or also passes a LinkNetwork
	LinkLoopback LinkKind = "loopback" // loopback interface
	// LinkAllReduce is not hardware: it stands for all connections that the all-reduces of gradients use.
	LinkAllReduce LinkKind = "all-reduce"
)

// Basis is the method by which the traffic of a link is measured.
type Basis string

// Methods of measurement.
const (
	BasisCounter Basis = "counter" // differences of a byte counter
	BasisSample  Basis = "sample"  // means over short intervals; the traffic between two intervals is unknown
	// BasisComputed means that there is no counter: the traffic is computed from the bytes of the gradients and the
	// time of their all-reduces.
	BasisComputed Basis = "computed"
)

// Link describes a link of a rank.
type Link struct {
	Kind  LinkKind `json:"kind"`
	Name  string   `json:"name"`            // such as "eth0" or "mlx5_0/1"
	Limit float64  `json:"limit,omitempty"` // bytes/s in each direction; 0: unknown
	Basis Basis    `json:"basis"`
}

// Traffic is the traffic of a link in both directions. A value is NaN if it is unknown.
type Traffic struct {
	Sent, Received float64 // bytes/s since the previous measurement
	// SentBytes and ReceivedBytes are totals since the first measurement in this process. They are NaN for a link
	// without a byte counter.
	SentBytes, ReceivedBytes float64
}

// UnknownTraffic returns a Traffic whose values are all unknown.
func UnknownTraffic() Traffic {
	nan := math.NaN()
	return Traffic{nan, nan, nan, nan}
}

// Meter computes the traffic of a link from its byte counters. The zero value is a Meter without measurements.
type Meter struct {
	sent, received direction
}

// direction is one direction of a link.
type direction struct {
	known   bool    // seconds and value are set
	seconds float64 // time of the previous measurement
	value   float64 // counter at that time
	total   float64 // bytes since the first measurement
}

// Add adds the values of the two counters at a time in seconds, which may come from any monotonic clock. NaN means that
// a counter cannot be read. The rate is unknown if this value or the previous one is unknown, and after a counter has
// restarted.
func (m *Meter) Add(seconds, sent, received float64) (t Traffic) {
	t.Sent, t.SentBytes = m.sent.add(seconds, sent)
	t.Received, t.ReceivedBytes = m.received.add(seconds, received)
	return t
}

func (d *direction) add(seconds, value float64) (rate, total float64) {
	rate = math.NaN()
	if math.IsNaN(value) {
		d.known = false
		return rate, math.NaN()
	}
	if d.known && value >= d.value {
		d.total += value - d.value
		if elapsed := seconds - d.seconds; elapsed > 0 {
			rate = (value - d.value) / elapsed
		}
	}
	d.known, d.seconds, d.value = true, seconds, value
	return rate, d.total
}

// trafficSensors are the sensors of each kind of link: sent, received. Other kinds have no sensor, because their
// traffic stays in the machine or would count twice.
var trafficSensors = map[LinkKind][2]Sensor{
	LinkNVLink:  {NVLinkSent, NVLinkReceived},
	LinkPCIe:    {PCIeSent, PCIeReceived},
	LinkNetwork: {NetworkSent, NetworkReceived},
	LinkRDMA:    {RDMASent, RDMAReceived},
}

// PutTraffic sets the traffic sensors to the sums over the links of each kind. traffic[i] belongs to links[i]. Links
// with unknown traffic are ignored. If the traffic of all links of a kind is unknown, the sensors of this kind are
// unknown.
func PutTraffic(s *Sample, links []Link, traffic []Traffic) {
	for i, l := range links {
		sensors, summed := trafficSensors[l.Kind]
		if !summed {
			continue
		}
		for direction, rate := range [2]float64{traffic[i].Sent, traffic[i].Received} {
			if v := &s[sensors[direction]]; !math.IsNaN(rate) {
				*v = orElse(*v, 0) + rate
			}
		}
	}
}
