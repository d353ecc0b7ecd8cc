package hardware

import "fmt"

// Vendor is the manufacturer of a device.
type Vendor string

// Vendors.
const (
	Nvidia Vendor = "Nvidia"
	CPU    Vendor = "CPU"
)

// GPU describes one GPU. Values that the driver does not report are 0 or "".
type GPU struct {
	Index             int     `json:"index"` // NVML's number, by position on the bus
	UUID              string  `json:"uuid"`
	Name              string  `json:"name"`
	Vendor            Vendor  `json:"vendor"`
	Architecture      string  `json:"architecture"`       // "Turing"
	ComputeCapability string  `json:"compute_capability"` // "7.5"
	SMs               int     `json:"sms"`                // streaming multiprocessors
	CUDACores         int     `json:"cuda_cores"`
	MemoryBytes       int64   `json:"memory_bytes"`
	BusID             string  `json:"bus_id"`
	PCIe              Link    `json:"pcie"`
	NVLinks           int     `json:"nvlinks"` // active links
	SMClockMHz        int     `json:"sm_clock_mhz"`
	SMClockMaxMHz     int     `json:"sm_clock_max_mhz"`
	MemoryClockMHz    int     `json:"memory_clock_mhz"`
	MemoryClockMaxMHz int     `json:"memory_clock_max_mhz"`
	PowerLimitWatts   float64 `json:"power_limit_watts"`
	TemperatureC      int     `json:"temperature_celsius"`
	Driver            string  `json:"driver"`
	CUDA              string  `json:"cuda"` // newest version that the driver supports, "13.0"
	MIG               bool    `json:"mig"`  // divided into instances: the figures above are those of the whole card

}

// Link is a PCIe connection, its present state and its maximum. An idle GPU lowers the generation, not the width.
type Link struct {
	Generation    int `json:"generation"`
	Width         int `json:"width"` // lanes
	GenerationMax int `json:"generation_max"`
	WidthMax      int `json:"width_max"`
}

// Percent returns generation times width, in percent of their maxima; 0 if unknown. Each generation doubles the
// bandwidth, but the generation counts linearly, so that an idle link does not look broken.
func (l Link) Percent() float64 {
	if l.GenerationMax < 1 || l.WidthMax < 1 {
		return 0
	}
	return 100 * float64(l.Generation*l.Width) / float64(l.GenerationMax*l.WidthMax)
}

func (g GPU) String() string {
	return fmt.Sprintf("GPU %d: %s, %s (compute capability %s), %d MB", g.Index, g.Name, g.Architecture, g.ComputeCapability, g.MemoryBytes>>20)
}

// architecture returns the family of a compute capability and its CUDA cores per SM (CUDA C++ Programming Guide,
// "Arithmetic Instructions": f32 results per clock and SM). For a capability newer than this table it returns "" and 0.
func architecture(major, minor int) (name string, coresPerSM int) {
	switch major {
	case 3:
		return "Kepler", 192
	case 5:
		return "Maxwell", 128
	case 6:
		if minor == 0 {
			return "Pascal", 64
		}
		return "Pascal", 128
	case 7:
		if minor >= 5 {
			return "Turing", 64
		}
		return "Volta", 64
	case 8:
		switch minor {
		case 0:
			return "Ampere", 64
		case 9:
			return "Ada", 128
		}
		return "Ampere", 128
	case 9:
		return "Hopper", 128
	case 10, 11, 12:
		return "Blackwell", 128
	}
	return "", 0
}
