package system

import (
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// Sensors contains values of the CPU's sensors. All programs on the machine influence them. A value that is not
// available is NaN; most virtual machines have none.
type Sensors struct {
	TemperatureCelsius float64
	PowerWatts         float64 // mean power of all sockets since the previous sample; only root can read it
	ClockPercent       float64 // clock of the first CPU in percent of its maximum
	Throttled          float64 // 1 if the CPU was too hot since the previous sample, otherwise 0
}

// Put copies the values to the sensors of a telemetry sample.
func (v *Sensors) Put(s *telemetry.Sample) {
	s[telemetry.Temperature], s[telemetry.Power], s[telemetry.Clock] = v.TemperatureCelsius, v.PowerWatts,
		v.ClockPercent
	s[telemetry.ThermalThrottling] = v.Throttled
}

// SensorSampler reads Sensors. It is not safe for concurrent use.
type SensorSampler struct {
	root        fs.FS
	now         func() time.Time
	temperature string // path of the file; "" if there is none
	energy      []energyCounter
	clock       string
	clockMax    float64 // in kHz
	throttles   string  // path of the file

	sampled  time.Time
	throttle float64
}

// energyCounter is the energy counter of a socket, in uJ.
type energyCounter struct {
	file   string
	before float64
	wraps  float64 // largest value of the counter, after which it restarts at 0
}

// NewSensorSampler finds the sensors of this machine.
func NewSensorSampler() *SensorSampler { return newSensorSampler(os.DirFS("/"), time.Now) }

const firstCPU = "sys/devices/system/cpu/cpu0/"

func newSensorSampler(root fs.FS, now func() time.Time) *SensorSampler {
	s := &SensorSampler{root: root, now: now, temperature: temperatureFile(root)}
	// only whole sockets: the names of their parts contain a second ":"
	zones, _ := fs.Glob(root, "sys/class/powercap/*rapl:[0-9]*/energy_uj")
	for _, zone := range zones {
		if name := path.Base(path.Dir(zone)); strings.Count(name, ":") != 1 {
			continue
		}
		if _, err := s.number(zone); err == nil {
			wraps, _ := s.number(path.Join(path.Dir(zone), "max_energy_range_uj"))
			s.energy = append(s.energy, energyCounter{file: zone, wraps: wraps})
		}
	}
	if most, err := s.number(firstCPU + "cpufreq/cpuinfo_max_freq"); err == nil && most > 0 {
		s.clock, s.clockMax = firstCPU+"cpufreq/scaling_cur_freq", most
	}
	s.throttles = firstCPU + "thermal_throttle/package_throttle_count"
	s.Sample()
	return s
}

// temperatureFile returns the file of the temperature sensor of a CPU package. It tries the names that drivers use.
func temperatureFile(root fs.FS) string {
	for _, place := range []struct {
		pattern, value string
		names          []string
	}{
		{"sys/class/hwmon/hwmon*/name", "temp1_input", []string{"coretemp", "k10temp", "zenpower", "cpu_thermal"}},
		{"sys/class/thermal/thermal_zone*/type", "temp",
			[]string{"x86_pkg_temp", "cpu-thermal", "cpu_thermal", "soc_thermal"}},
	} {
		files, _ := fs.Glob(root, place.pattern)
		for _, file := range files {
			name, err := readLine(root, file)
			if err == nil && slices.Contains(place.names, name) {
				return path.Join(path.Dir(file), place.value)
			}
		}
	}
	return ""
}

// Sample reads the sensors.
func (s *SensorSampler) Sample() Sensors {
	now, nan := s.now(), math.NaN()
	out := Sensors{TemperatureCelsius: nan, PowerWatts: nan, ClockPercent: nan, Throttled: nan}
	if milli, err := s.number(s.temperature); err == nil {
		out.TemperatureCelsius = milli / 1000
	}
	if clock, err := s.number(s.clock); err == nil {
		out.ClockPercent = 100 * clock / s.clockMax
	}
	if n, err := s.number(s.throttles); err == nil {
		out.Throttled = telemetry.Bit(!s.sampled.IsZero() && n > s.throttle)
		s.throttle = n
	}
	elapsed := now.Sub(s.sampled).Seconds()
	joules, known := s.joules()
	if known && !s.sampled.IsZero() && elapsed > 0 {
		out.PowerWatts = joules / elapsed
	}
	s.sampled = now
	return out
}

// joules returns the energy of all sockets since the previous call.
func (s *SensorSampler) joules() (sum float64, known bool) {
	known = len(s.energy) > 0
	for i := range s.energy {
		e := &s.energy[i]
		value, err := s.number(e.file)
		if err != nil {
			known = false
			continue
		}
		used := value - e.before
		if used < 0 {
			used += e.wraps
		}
		sum += used / 1e6
		e.before = value
	}
	return sum, known
}

func (s *SensorSampler) number(file string) (float64, error) {
	if file == "" {
		return 0, fs.ErrNotExist
	}
	line, err := readLine(s.root, file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(line, 64)
}
