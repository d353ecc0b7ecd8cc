//go:build cgo && linux

package hardwaretest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
)

// Card is a fake GPU.
type Card struct {
	Name         string
	UUID         string // "": derived from the index in the machine
	Major, Minor int    // compute capability
	Cores        int    // number of CUDA cores
	MemoryBytes  uint64
	Generation   int // largest PCIe generation
	Width        int // largest number of PCIe lanes
	NVLinks      int
	ClockMHz     uint32 // largest clock of the SMs
	MemoryMHz    uint32
	LimitWatts   uint32
	NoECC        bool   // the GPU does not count memory errors
	OldDriver    bool   // the driver lacks functions that were added in version 470
	NoTraffic    bool   // the GPU does not measure the traffic of its links, like virtual GPUs
	NVLink5      bool   // the GPU counts bytes of NVLink in the fields of NVLink 5
	LinkMBytes   uint32 // speed of an NVLink connection, MB/s

	// The following fields may change; see Set.
	Lost         bool
	Utilization  uint32 // percent
	UsedBytes    uint64
	Temperature  uint32
	PowerWatts   uint32
	NowMHz       uint32
	NowWidth     int    // current number of PCIe lanes; 0 means Width
	Reasons      uint64 // bits of nvml.ClocksThrottleReason…
	Uncorrected  uint64
	PCIeKBytes   [2]uint32 // throughput of PCIe: sent, received, KB/s
	NVLinkBytes  [2]uint64 // counters of each NVLink connection: sent, received
	Processes    []uint32  // PIDs
	ProcessesAsk int       // number of queries of Processes

	mu sync.Mutex
}

// GTX1650 returns a small GPU of the Turing architecture, without NVLink, ECC and fast bf16.
func GTX1650() *Card {
	return &Card{Name: "NVIDIA GeForce GTX 1650", Major: 7, Minor: 5, Cores: 896, MemoryBytes: 4 << 30, Generation: 3,
		Width:    16,
		ClockMHz: 2145, MemoryMHz: 4001, LimitWatts: 75, NowMHz: 300, Temperature: 41, PowerWatts: 9, NoECC: true}
}

// RTX3060 returns a desktop GPU of the Ampere architecture.
func RTX3060() *Card {
	return &Card{Name: "NVIDIA GeForce RTX 3060", Major: 8, Minor: 6, Cores: 3584, MemoryBytes: 12 << 30, Generation: 4,
		Width:    16,
		ClockMHz: 2100, MemoryMHz: 7501, LimitWatts: 170, NowMHz: 210, Temperature: 38, PowerWatts: 14, NoECC: true}
}

// H100 returns a server GPU with NVLink.
func H100() *Card {
	return &Card{Name: "NVIDIA H100 80GB HBM3", Major: 9, Minor: 0, Cores: 16896, MemoryBytes: 80 << 30, Generation: 5,
		Width: 16, NVLinks: 18,
		ClockMHz: 1980, MemoryMHz: 2619, LimitWatts: 700, NowMHz: 345, Temperature: 33, PowerWatts: 72,
		LinkMBytes: 26562}
}

// Set changes the state of the GPU. It may be called while the GPU is sampled.
func (c *Card) Set(change func(*Card)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
}

// Machine returns a machine with these GPUs, in this order.
func Machine(cards ...*Card) nvml.Interface {
	devices := make([]nvml.Device, len(cards))
	old := false
	for i, c := range cards {
		if c.UUID == "" {
			c.UUID = fmt.Sprintf("GPU-%08x-0000-4000-8000-000000000000", i+1)
		}
		d := new(mock.Device)
		c.identify(d, i)
		c.answer(d)
		devices[i] = d
		old = old || c.OldDriver
	}
	m := driver(old)
	m.DeviceGetCountFunc = func() (int, nvml.Return) { return len(devices), nvml.SUCCESS }
	m.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i < 0 || i >= len(devices) {
			return nil, nvml.ERROR_INVALID_ARGUMENT
		}
		if cards[i].gone() {
			return nil, nvml.ERROR_GPU_IS_LOST
		}
		return devices[i], nvml.SUCCESS
	}
	return m
}

// Laptop returns a machine without an NVIDIA GPU and without a driver.
func Laptop() nvml.Interface { return Broken(nvml.ERROR_LIBRARY_NOT_FOUND) }

// Broken returns a machine on which the initialisation of NVML fails with ret.
func Broken(ret nvml.Return) nvml.Interface {
	return &mock.Interface{InitFunc: func() nvml.Return { return ret }}
}

// DGX returns the fake DGX A100 of go-nvml, extended by the query functions that it lacks. The returned cards change
// the state of its eight GPUs.
func DGX() (nvml.Interface, []*Card) {
	server := dgxa100.New()
	cards := make([]*Card, len(server.Devices))
	for i := range cards {
		cards[i] = &Card{Cores: 6912, MemoryBytes: 40 << 30, Generation: 4, Width: 16, NVLinks: 12, ClockMHz: 1410,
			MemoryMHz:  1215,
			LimitWatts: 400, NowMHz: 210, Temperature: 30, PowerWatts: 52}
		cards[i].answer(&server.Devices[i].(*dgxa100.Device).Device)
	}
	return server, cards
}

// driver returns a driver whose initialisation succeeds. If old is set, the driver lacks newer functions.
func driver(old bool) *mock.Interface {
	symbols := &mock.ExtendedInterface{LookupSymbolFunc: func(name string) error {
		if old {
			return errors.New(name + ": undefined symbol")
		}
		return nil
	}}
	succeed := func() nvml.Return { return nvml.SUCCESS }
	return &mock.Interface{
		InitFunc: succeed, ShutdownFunc: succeed,
		ExtensionsFunc:                 func() nvml.ExtendedInterface { return symbols },
		SystemGetDriverVersionFunc:     func() (string, nvml.Return) { return "580.95.05", nvml.SUCCESS },
		SystemGetCudaDriverVersionFunc: func() (int, nvml.Return) { return 13000, nvml.SUCCESS },
	}
}

func (c *Card) gone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Lost
}

// ask returns a query function of the GPU. It returns the value of get, or an error if the GPU is lost.
func ask[T any](c *Card, get func() T) func() (T, nvml.Return) {
	return func() (value T, ret nvml.Return) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.Lost {
			return value, nvml.ERROR_GPU_IS_LOST
		}
		return get(), nvml.SUCCESS
	}
}

// identify sets the query functions for the identity of a GPU.
func (c *Card) identify(d *mock.Device, index int) {
	d.GetNameFunc = ask(c, func() string { return c.Name })
	d.GetUUIDFunc = ask(c, func() string { return c.UUID })
	d.GetCudaComputeCapabilityFunc = func() (int, int, nvml.Return) { return c.Major, c.Minor, nvml.SUCCESS }
	d.GetMigModeFunc = func() (int, int, nvml.Return) { return 0, 0, nvml.ERROR_NOT_SUPPORTED }
	d.GetPciInfoFunc = ask(c, func() (p nvml.PciInfo) {
		for i, ch := range fmt.Sprintf("00000000:%02X:00.0", index+1) {
			p.BusId[i] = int8(ch)
		}
		return p
	})
}

// answer sets the query functions for the state of a GPU, and those that go-nvml's DGX lacks.
func (c *Card) answer(d *mock.Device) {
	d.GetMemoryInfoFunc = ask(c, func() nvml.Memory {
		return nvml.Memory{Total: c.MemoryBytes, Used: c.UsedBytes, Free: c.MemoryBytes - c.UsedBytes}
	})
	d.GetNumGpuCoresFunc = ask(c, func() int { return c.Cores })
	d.GetMaxPcieLinkGenerationFunc = ask(c, func() int { return c.Generation })
	d.GetMaxPcieLinkWidthFunc = ask(c, func() int { return c.Width })
	d.GetCurrPcieLinkGenerationFunc = ask(c, func() int { return c.Generation })
	d.GetCurrPcieLinkWidthFunc = ask(c, func() int {
		if c.NowWidth > 0 {
			return c.NowWidth
		}
		return c.Width
	})
	d.GetNvLinkStateFunc = func(link int) (nvml.EnableState, nvml.Return) {
		if link >= c.NVLinks {
			return nvml.FEATURE_DISABLED, nvml.ERROR_NOT_SUPPORTED
		}
		return nvml.FEATURE_ENABLED, nvml.SUCCESS
	}
	c.carry(d)
	clock := func(sm, memory *uint32) func(nvml.ClockType) (uint32, nvml.Return) {
		return func(kind nvml.ClockType) (uint32, nvml.Return) {
			return ask(c, func() uint32 {
				if kind == nvml.CLOCK_MEM {
					return *memory
				}
				return *sm
			})()
		}
	}
	d.GetClockInfoFunc, d.GetMaxClockInfoFunc = clock(&c.NowMHz, &c.MemoryMHz), clock(&c.ClockMHz, &c.MemoryMHz)
	d.GetEnforcedPowerLimitFunc = ask(c, func() uint32 { return 1000 * c.LimitWatts })
	d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) {
		return ask(c, func() uint32 { return c.Temperature })()
	}
	d.GetUtilizationRatesFunc = ask(c, func() nvml.Utilization { return nvml.Utilization{Gpu: c.Utilization} })
	d.GetPowerUsageFunc = ask(c, func() uint32 { return 1000 * c.PowerWatts })
	d.GetCurrentClocksThrottleReasonsFunc = ask(c, func() uint64 { return c.Reasons })
	d.GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
		if c.NoECC && !c.gone() {
			return 0, nvml.ERROR_NOT_SUPPORTED
		}
		return ask(c, func() uint64 { return c.Uncorrected })()
	}
	d.GetComputeRunningProcessesFunc = ask(c, func() []nvml.ProcessInfo {
		c.ProcessesAsk++
		list := make([]nvml.ProcessInfo, len(c.Processes))
		for i, pid := range c.Processes {
			list[i].Pid = pid
		}
		return list
	})
}

// carry sets the query functions for the traffic of the GPU's links.
func (c *Card) carry(d *mock.Device) {
	d.GetPcieThroughputFunc = func(direction nvml.PcieUtilCounter) (uint32, nvml.Return) {
		if c.NoTraffic {
			return 0, nvml.ERROR_NOT_SUPPORTED
		}
		return ask(c, func() uint32 { return c.PCIeKBytes[direction] })()
	}
	d.GetFieldValuesFunc = func(values []nvml.FieldValue) nvml.Return {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.Lost {
			return nvml.ERROR_GPU_IS_LOST
		}
		for i := range values {
			c.field(&values[i])
		}
		return nvml.SUCCESS
	}
}

// field sets the value of a field, or its error.
func (c *Card) field(v *nvml.FieldValue) {
	set := func(kind nvml.ValueType, value uint64) {
		v.ValueType, v.NvmlReturn = uint32(kind), uint32(nvml.SUCCESS)
		binary.NativeEndian.PutUint64(v.Value[:], value)
	}
	bytes := c.NVLinkBytes
	v.NvmlReturn = uint32(nvml.ERROR_NOT_SUPPORTED)
	switch {
	case v.ScopeId >= uint32(c.NVLinks):
		v.NvmlReturn = uint32(nvml.ERROR_INVALID_ARGUMENT)
	case v.FieldId == nvml.FI_DEV_NVLINK_GET_SPEED && c.LinkMBytes > 0:
		set(nvml.VALUE_TYPE_UNSIGNED_INT, uint64(c.LinkMBytes))
	case c.NoTraffic:
	case v.FieldId == nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX && !c.NVLink5:
		set(nvml.VALUE_TYPE_UNSIGNED_LONG_LONG, bytes[0]/1024)
	case v.FieldId == nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX && !c.NVLink5:
		set(nvml.VALUE_TYPE_UNSIGNED_LONG_LONG, bytes[1]/1024)
	case v.FieldId == nvml.FI_DEV_NVLINK_COUNT_XMIT_BYTES && c.NVLink5:
		set(nvml.VALUE_TYPE_UNSIGNED_LONG_LONG, bytes[0])
	case v.FieldId == nvml.FI_DEV_NVLINK_COUNT_RCV_BYTES && c.NVLink5:
		set(nvml.VALUE_TYPE_UNSIGNED_LONG_LONG, bytes[1])
	}
}
