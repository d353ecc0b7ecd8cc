//go:build cgo && linux

package hardware

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// gpuLinks is the LinkSource of a GPU.
type gpuLinks struct {
	dev   nvml.Device
	list  []telemetry.Link
	begun time.Time

	pcie     bool    // list[0] is the PCIe link
	nvlinks  []int   // numbers of the active NVLink connections
	each     bool    // true: each connection is an element of list; false: their sum is one element
	counters nvCount // counters of the connections
	values   []nvml.FieldValue
	meters   []telemetry.Meter // one per connection, or one for their sum
}

// nvCount contains the ids of two NVML fields: the bytes that an NVLink connection has sent and received.
type nvCount struct {
	sent, received uint32
	unit           float64 // bytes for an increase of the field by 1
}

// nvCounts are the fields in the order of preference. The first ones count the payload in KiB and exist since Ampere.
// The second ones count bytes and exist since Blackwell. NVML's utilization counters of older GPUs are not used: an
// administrator can configure them to count something else, such as packets.
var nvCounts = []nvCount{
	{nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, 1024},
	{nvml.FI_DEV_NVLINK_COUNT_XMIT_BYTES, nvml.FI_DEV_NVLINK_COUNT_RCV_BYTES, 1},
}

// links implements driver.
func (d *nvmlDriver) links(g *GPU, each bool) LinkSource {
	dev := d.devices[g.Index]
	s := &gpuLinks{dev: dev, each: each, begun: time.Now()}
	if g.PCIe.Width > 0 {
		s.pcie = true
		s.list = append(s.list, telemetry.Link{Kind: telemetry.LinkPCIe, Name: "pcie", Limit: g.PCIe.bytesPerSecond(),
			Basis: telemetry.BasisSample})
	}
	s.nvlinks = activeLinks(dev)
	if len(s.nvlinks) == 0 {
		return s
	}
	fields := d.offers("nvmlDeviceGetFieldValues")
	sum, known := 0.0, true
	for _, link := range s.nvlinks {
		limit := 0.0
		if fields {
			limit = nvLinkSpeed(dev, link)
		}
		if each {
			s.list = append(s.list, telemetry.Link{Kind: telemetry.LinkNVLink, Name: fmt.Sprintf("nvlink%d", link),
				Limit: limit, Basis: telemetry.BasisCounter})
		}
		sum, known = sum+limit, known && limit > 0
	}
	if !known {
		sum = 0
	}
	if !each {
		s.list = append(s.list, telemetry.Link{Kind: telemetry.LinkNVLink, Name: "nvlink", Limit: sum,
			Basis: telemetry.BasisCounter})
	}
	s.meters = make([]telemetry.Meter, len(s.nvlinks))
	for _, c := range nvCounts {
		if _, known := fieldOf(dev, c.sent, s.nvlinks[0]); fields && known {
			s.counters = c
			s.values = make([]nvml.FieldValue, 2*len(s.nvlinks))
			break
		}
	}
	return s
}

// nvLinkSpeed returns the speed of an NVLink connection in one direction in bytes/s, or 0.
func nvLinkSpeed(dev nvml.Device, link int) float64 {
	for _, field := range []uint32{nvml.FI_DEV_NVLINK_GET_SPEED, nvml.FI_DEV_NVLINK_SPEED_MBPS_COMMON} {
		if megabytes, known := fieldOf(dev, field, link); known && megabytes > 0 {
			return 1e6 * megabytes
		}
	}
	return 0
}

// fieldOf returns the value of one field.
func fieldOf(dev nvml.Device, field uint32, link int) (value float64, known bool) {
	values := []nvml.FieldValue{{FieldId: field, ScopeId: uint32(link)}}
	if ret := dev.GetFieldValues(values); ret != nvml.SUCCESS {
		return 0, false
	}
	return number(&values[0])
}

// number converts the value of a field to a float64. The type of the value is known only at run time.
func number(v *nvml.FieldValue) (value float64, known bool) {
	if nvml.Return(v.NvmlReturn) != nvml.SUCCESS {
		return 0, false
	}
	bits := binary.NativeEndian.Uint64(v.Value[:])
	switch nvml.ValueType(v.ValueType) {
	case nvml.VALUE_TYPE_DOUBLE:
		return math.Float64frombits(bits), true
	case nvml.VALUE_TYPE_UNSIGNED_INT:
		return float64(binary.NativeEndian.Uint32(v.Value[:])), true
	case nvml.VALUE_TYPE_SIGNED_INT:
		return float64(int32(binary.NativeEndian.Uint32(v.Value[:]))), true
	case nvml.VALUE_TYPE_UNSIGNED_LONG, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG:
		return float64(bits), true
	case nvml.VALUE_TYPE_SIGNED_LONG_LONG:
		return float64(int64(bits)), true
	}
	return 0, false
}

// Links implements LinkSource.
func (s *gpuLinks) Links() []telemetry.Link { return s.list }

// Sample implements LinkSource.
func (s *gpuLinks) Sample(into []telemetry.Traffic) {
	for i := range into {
		into[i] = telemetry.UnknownTraffic()
	}
	if s.pcie {
		into[0].Sent, into[0].Received = s.pcieRate(nvml.PCIE_UTIL_TX_BYTES), s.pcieRate(nvml.PCIE_UTIL_RX_BYTES)
		into = into[1:]
	}
	if len(s.values) == 0 {
		return
	}
	for i, link := range s.nvlinks {
		s.values[2*i] = nvml.FieldValue{FieldId: s.counters.sent, ScopeId: uint32(link)}
		s.values[2*i+1] = nvml.FieldValue{FieldId: s.counters.received, ScopeId: uint32(link)}
	}
	if ret := s.dev.GetFieldValues(s.values); ret != nvml.SUCCESS {
		for i := range s.values {
			s.values[i].NvmlReturn = uint32(ret)
		}
	}
	at := time.Since(s.begun).Seconds()
	sent, received := 0.0, 0.0
	for i := range s.nvlinks {
		out, in := s.count(2*i), s.count(2*i+1)
		if s.each {
			into[i] = s.meters[i].Add(at, out, in)
		}
		sent, received = sent+out, received+in // the sum is NaN if a counter is unknown
	}
	if !s.each {
		into[0] = s.meters[0].Add(at, sent, received)
	}
}

// count returns a counter in bytes, or NaN.
func (s *gpuLinks) count(i int) float64 {
	v, known := number(&s.values[i])
	if !known {
		return math.NaN()
	}
	return s.counters.unit * v
}

// pcieRate returns the throughput of PCIe in one direction in bytes/s, or NaN. NVML measures the throughput over 20 ms,
// in KB/s. NVML also has counters of PCIe bytes, but they have 32 bits and wrap around within 0.1 s.
func (s *gpuLinks) pcieRate(direction nvml.PcieUtilCounter) float64 {
	kilobytes, ret := s.dev.GetPcieThroughput(direction)
	if ret != nvml.SUCCESS {
		return math.NaN()
	}
	return 1e3 * float64(kilobytes)
}
