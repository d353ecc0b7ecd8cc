package hardware

import "fmt"

// Vendor is the manufacturer of a device.
type Vendor string

// The vendors that this package supports.
const (
	Nvidia Vendor = "Nvidia"
	CPU    Vendor = "CPU"
)

// GPU describes one GPU. Values that the driver does not report are 0 or "".
type GPU struct {
	Index             int     `json:"index"` // index in NVML, in the order of bus addresses
	UUID              string  `json:"uuid"`
	Name              string  `json:"name"`
	Vendor            Vendor  `json:"vendor"`
	Architecture      string  `json:"architecture"`       // for example "Turing"
	ComputeCapability string  `json:"compute_capability"` // for example "7.5"
	SMs               int     `json:"sms"`                // number of streaming multiprocessors
	CUDACores         int     `json:"cuda_cores"`
	MemoryBytes       int64   `json:"memory_bytes"`
	BusID             string  `json:"bus_id"`
	PCIe              Link    `json:"pcie"`
	NVLinks           int     `json:"nvlinks"` // number of active links
	SMClockMHz        int     `json:"sm_clock_mhz"`
	SMClockMaxMHz     int     `json:"sm_clock_max_mhz"`
	MemoryClockMHz    int     `json:"memory_clock_mhz"`
	MemoryClockMaxMHz int     `json:"memory_clock_max_mhz"`
	PowerLimitWatts   float64 `json:"power_limit_watts"`
	TemperatureC      int     `json:"temperature_celsius"`
	Driver            string  `json:"driver"`
	CUDA              string  `json:"cuda"` // newest CUDA version that the driver supports, such as "13.0"
	// the GPU is divided into instances; the other fields describe the whole GPU
	MIG bool `json:"mig"`
}

// Link is the current and the maximum state of a PCIe connection. An idle GPU lowers the generation, but not the
// width.
type Link struct {
	Generation    int `json:"generation"`
	Width         int `json:"width"` // number of lanes
	GenerationMax int `json:"generation_max"`
	WidthMax      int `json:"width_max"`
}

// Percent returns the product of generation and width, in percent of the product of their maxima; 0 if unknown. Each
// generation doubles the bandwidth, but Percent counts generations linearly, so that an idle link, whose generation is
// lower, does not look broken.
func (l Link) Percent() float64 {
	if l.GenerationMax < 1 || l.WidthMax < 1 {
		return 0
	}
	return 100 * float64(l.Generation*l.Width) / float64(l.GenerationMax*l.WidthMax)
}

// laneRates are the data rates of one lane in one direction, in bytes/s, by PCIe generation. Each rate is the number of
// transfers/s times the efficiency of the encoding. Generations 1 and 2 encode 8 bits in 10, and generations 3 to 5
// encode 128 bits in 130. Generation 6 uses 242 of 256 bytes for data.
var laneRates = []float64{1: 2.5e9 / 10, 2: 5e9 / 10, 3: 8e9 / 8 * 128 / 130, 4: 16e9 / 8 * 128 / 130,
	5: 32e9 / 8 * 128 / 130, 6: 64e9 / 8 * 242 / 256}

// bytesPerSecond returns the bandwidth of the connection in one direction, or 0. It assumes the current number of lanes
// and the largest generation, to which an idle GPU returns when it has work. The bandwidth includes packet headers.
func (l Link) bytesPerSecond() float64 {
	if l.GenerationMax < 1 || l.GenerationMax >= len(laneRates) {
		return 0
	}
	return float64(l.Width) * laneRates[l.GenerationMax]
}

func (g GPU) String() string {
	return fmt.Sprintf("GPU %d: %s, %s (compute capability %s), %d MB", g.Index, g.Name, g.Architecture,
		g.ComputeCapability, g.MemoryBytes>>20)
}

// architecture returns the name of a compute capability's architecture, and its number of CUDA cores per SM (CUDA C++
// Programming Guide, "Arithmetic Instructions": f32 results per clock and SM). For a capability that is newer than
// this table, it returns "" and 0.
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
