//go:build cgo && linux

package hardware

import (
	"fmt"
	"math"
	"os"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// nvmlDriver is the driver interface to NVML.
type nvmlDriver struct {
	lib     nvml.Interface
	devices map[int]nvml.Device // device handles by index
	seen    map[int]float64     // number of other processes on each GPU at the last count
	lost    map[int]*LostError
	hidden  bool // the PID of this process is a different one in NVML
}

// Open finds the GPUs of this machine. If there are none, the result contains the reason.
func Open() *GPUs { return OpenNVML(nvml.New()) }

// OpenNVML is the same as Open, but uses the given library, for example a fake machine.
func OpenNVML(lib nvml.Interface) *GPUs {
	if ret := lib.Init(); ret != nvml.SUCCESS {
		return None(reasonOf(ret))
	}
	count, ret := lib.DeviceGetCount()
	if ret != nvml.SUCCESS || count == 0 {
		_ = lib.Shutdown() // there is nothing to close
		if ret != nvml.SUCCESS {
			return None(fmt.Sprintf("NVML cannot count the GPUs: %s", ret.Error()))
		}
		return None("NVIDIA's driver is loaded, but there is no GPU")
	}
	d := &nvmlDriver{lib: lib, devices: map[int]nvml.Device{}, seen: map[int]float64{}, lost: map[int]*LostError{},
		hidden: inOwnPIDNamespace()}
	g := &GPUs{driver: d}
	for i := range count {
		dev, ret := lib.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS { // the GPU fell off the bus, or this user has no access; other GPUs may work
			g.warnings = append(g.warnings, fmt.Sprintf("GPU %d cannot be used: %s", i, ret.Error()))
			continue
		}
		gpu, ret := d.describe(i, dev)
		if ret != nvml.SUCCESS {
			g.warnings = append(g.warnings, fmt.Sprintf("GPU %d does not report its model: %s", i, ret.Error()))
			continue
		}
		d.devices[i] = dev
		g.list = append(g.list, gpu)
	}
	if len(g.list) == 0 {
		g.reason = fmt.Sprintf("none of the %d GPUs responds: %s", count, g.warnings[0])
	}
	return g
}

// reasonOf returns the reason why NVML cannot be initialised.
func reasonOf(ret nvml.Return) string {
	switch ret {
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return "no NVIDIA driver: libnvidia-ml.so.1 is missing (start a container with GPUs: docker run --gpus all)"
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return "NVIDIA's libraries are installed, but the driver is not loaded"
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return "NVIDIA's library NVML and the driver have different versions: the machine needs a restart after a driver update"
	case nvml.ERROR_NO_PERMISSION:
		return "this user has no permission to use NVIDIA's driver"
	}
	return fmt.Sprintf("NVIDIA's library NVML does not start: %s", ret.Error())
}

func (d *nvmlDriver) close() { _ = d.lib.Shutdown() } // other processes may still use the driver

// describe queries the properties of a GPU. It fails only if the identity is unknown.
func (d *nvmlDriver) describe(index int, dev nvml.Device) (GPU, nvml.Return) {
	g := GPU{Index: index, Vendor: Nvidia}
	var ret nvml.Return
	if g.Name, ret = dev.GetName(); ret != nvml.SUCCESS {
		return g, ret
	}
	if g.UUID, ret = dev.GetUUID(); ret != nvml.SUCCESS {
		return g, ret
	}
	memory, ret := dev.GetMemoryInfo()
	if ret != nvml.SUCCESS {
		return g, ret
	}
	g.MemoryBytes = int64(memory.Total)
	if major, minor, ret := dev.GetCudaComputeCapability(); ret == nvml.SUCCESS {
		var perSM int
		g.Architecture, perSM = architecture(major, minor)
		g.ComputeCapability = fmt.Sprintf("%d.%d", major, minor)
		if g.CUDACores = d.cores(dev); perSM > 0 {
			g.SMs = g.CUDACores / perSM
		}
	}
	if pci, ret := dev.GetPciInfo(); ret == nvml.SUCCESS {
		g.BusID = text(pci.BusId[:])
	}
	g.PCIe = Link{Generation: known(dev.GetCurrPcieLinkGeneration()), Width: known(dev.GetCurrPcieLinkWidth()),
		GenerationMax: known(dev.GetMaxPcieLinkGeneration()), WidthMax: known(dev.GetMaxPcieLinkWidth())}
	g.NVLinks = len(activeLinks(dev))
	g.SMClockMHz, g.SMClockMaxMHz = known(dev.GetClockInfo(nvml.CLOCK_SM)), known(dev.GetMaxClockInfo(nvml.CLOCK_SM))
	g.MemoryClockMHz, g.MemoryClockMaxMHz = known(dev.GetClockInfo(nvml.CLOCK_MEM)),
		known(dev.GetMaxClockInfo(nvml.CLOCK_MEM))
	g.PowerLimitWatts = float64(known(dev.GetEnforcedPowerLimit())) / 1000
	g.TemperatureC = known(dev.GetTemperature(nvml.TEMPERATURE_GPU))
	g.Driver, _ = d.lib.SystemGetDriverVersion()
	if v := known(d.lib.SystemGetCudaDriverVersion()); v > 0 {
		g.CUDA = fmt.Sprintf("%d.%d", v/1000, v%1000/10)
	}
	if d.offers("nvmlDeviceGetMigMode") {
		g.MIG = firstOf(dev.GetMigMode()) == nvml.DEVICE_MIG_ENABLE
	}
	return g, nvml.SUCCESS
}

// cores returns the number of CUDA cores, or 0 if the driver does not report it (before version 470).
func (d *nvmlDriver) cores(dev nvml.Device) int {
	if !d.offers("nvmlDeviceGetNumGpuCores") {
		return 0
	}
	return known(dev.GetNumGpuCores())
}

// offers reports whether the library contains a function. A call of a missing function would end the process.
func (d *nvmlDriver) offers(symbol string) bool {
	return d.lib.Extensions().LookupSymbol(symbol) == nil
}

// activeLinks returns the numbers of the active NVLink connections. GPUs without NVLink return an error for the first
// query.
func activeLinks(dev nvml.Device) (active []int) {
	for link := range nvml.NVLINK_MAX_LINKS {
		state, ret := dev.GetNvLinkState(link)
		if ret != nvml.SUCCESS {
			break
		}
		if state == nvml.FEATURE_ENABLED {
			active = append(active, link)
		}
	}
	return active
}

// sample implements driver.
func (d *nvmlDriver) sample(g *GPU, processes bool, s *telemetry.Sample) error {
	if lost := d.lost[g.Index]; lost != nil {
		return lost
	}
	dev := d.devices[g.Index]
	asked := &answers{}
	if use, ret := dev.GetUtilizationRates(); asked.ok(ret) {
		s[telemetry.Utilization] = float64(use.Gpu)
	}
	if memory, ret := dev.GetMemoryInfo(); asked.ok(ret) && memory.Total > 0 {
		s[telemetry.Memory] = 100 * float64(memory.Used) / float64(memory.Total)
	}
	if degrees, ret := dev.GetTemperature(nvml.TEMPERATURE_GPU); asked.ok(ret) {
		s[telemetry.Temperature] = float64(degrees)
	}
	if milliwatts, ret := dev.GetPowerUsage(); asked.ok(ret) {
		s[telemetry.Power] = float64(milliwatts) / 1000
	}
	if clock, ret := dev.GetClockInfo(nvml.CLOCK_SM); asked.ok(ret) && g.SMClockMaxMHz > 0 {
		s[telemetry.Clock] = 100 * float64(clock) / float64(g.SMClockMaxMHz)
	}
	if reasons, ret := dev.GetCurrentClocksThrottleReasons(); asked.ok(ret) { // all driver versions have this name
		throttling(reasons, s)
	}
	link := g.PCIe
	generation, ret := dev.GetCurrPcieLinkGeneration()
	width, ret2 := dev.GetCurrPcieLinkWidth()
	if asked.ok(ret) && asked.ok(ret2) && link.GenerationMax > 0 && link.WidthMax > 0 {
		link.Generation, link.Width = generation, width
		s[telemetry.PCIe] = link.Percent()
	}
	if n, ret := dev.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC); asked.ok(ret) {
		s[telemetry.ECCErrors] = float64(n)
	}
	if processes {
		d.seen[g.Index] = math.NaN()
		if list, ret := dev.GetComputeRunningProcesses(); asked.ok(ret) {
			d.seen[g.Index] = float64(others(list, os.Getpid(), d.hidden))
		}
	}
	s[telemetry.OtherProcesses] = d.seen[g.Index]
	if asked.lost == nvml.SUCCESS {
		return nil
	}
	lost := &LostError{GPU: *g, Reason: asked.lost.Error()}
	d.lost[g.Index] = lost
	return lost
}

// answers stores the error that reports a lost GPU, if one of many queries returned this error. Other errors, such as
// "not supported", only mean that a value is unknown.
type answers struct{ lost nvml.Return }

func (a *answers) ok(ret nvml.Return) bool {
	if ret == nvml.ERROR_GPU_IS_LOST || ret == nvml.ERROR_RESET_REQUIRED {
		a.lost = ret
	}
	return ret == nvml.SUCCESS
}

// throttling sets the throttling sensors from NVML's reasons. It ignores reasons that do not indicate a fault: idle,
// clocks set by the user, synchronised boards.
func throttling(reasons uint64, s *telemetry.Sample) {
	const (
		thermal = nvml.ClocksThrottleReasonSwThermalSlowdown | nvml.ClocksThrottleReasonHwThermalSlowdown
		power   = nvml.ClocksThrottleReasonSwPowerCap | nvml.ClocksThrottleReasonHwPowerBrakeSlowdown
		slowed  = nvml.ClocksThrottleReasonHwSlowdown | nvml.ClocksThrottleReasonHwThermalSlowdown |
			nvml.ClocksThrottleReasonHwPowerBrakeSlowdown
	)
	s[telemetry.ThermalThrottling] = telemetry.Bit(reasons&thermal != 0)
	s[telemetry.PowerLimit] = telemetry.Bit(reasons&power != 0)
	s[telemetry.HardwareSlowdown] = telemetry.Bit(reasons&slowed != 0)
}

// others returns the number of processes on a GPU except this one. In a container, this process cannot know its PID
// on the host. In that case, one of the processes is assumed to be this process, because a process that samples a GPU
// also uses it.
func others(list []nvml.ProcessInfo, own int, hidden bool) (n int) {
	for _, p := range list {
		if int(p.Pid) != own {
			n++
		}
	}
	if hidden && n == len(list) && n > 0 {
		n--
	}
	return n
}

// inOwnPIDNamespace reports whether PIDs in this process differ from those on the host. The number of the initial
// namespace is a constant of Linux (PROC_PID_INIT_INO).
func inOwnPIDNamespace() bool {
	name, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && name != "pid:[4026531836]"
}

// known returns v, or 0 if the query failed.
func known[T int | uint32](v T, ret nvml.Return) int {
	if ret != nvml.SUCCESS {
		return 0
	}
	return int(v)
}

func firstOf(now, _ int, ret nvml.Return) int { return known(now, ret) }

// text converts a C string to a Go string.
func text(chars []int8) string {
	var b []byte
	for _, c := range chars {
		if c == 0 {
			break
		}
		b = append(b, byte(c))
	}
	return string(b)
}

var _ driver = (*nvmlDriver)(nil)
