package prometheus

import (
	"strings"
	"unicode"

	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// exported describes the metric of a sensor.
type exported struct {
	name, kind, help string
	factor           float64 // factor by which values of the sensor are multiplied
}

// units maps the units of sensors to suffixes of metrics. Prometheus uses base units, and ratios instead of percent.
var units = map[string]struct {
	suffix string
	factor float64
}{"": {"", 1}, "%": {"_ratio", 0.01}, "°C": {"_celsius", 1}, "W": {"_watts", 1}, "fraction of samples": {"", 1},
	telemetry.BytesPerSecond: {"_bytes_per_second", 1}}

// export derives the metric of a sensor from its declaration. A unit that is not in the table units is itself the
// suffix.
func export(d telemetry.Declaration) exported {
	e := exported{name: "hetero_train_device_" + snake(d.Name), kind: "gauge", factor: 1, help: "Sensor " + d.Name +
		" of the rank's device, process or machine."}
	if u, known := units[d.Unit]; known {
		e.name, e.factor = e.name+u.suffix, u.factor
	} else {
		e.name += "_" + snake(d.Unit)
	}
	if d.Window == telemetry.Increase {
		e.name, e.kind = e.name+"_total", "counter"
	}
	return e
}

// snake converts a name to lower case, with "_" for characters that names of metrics cannot have.
func snake(name string) string {
	return strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return unicode.ToLower(r)
		}
		return '_'
	}, name)
}

// writeSensors writes the known sensors of all ranks.
func (m *Metrics) writeSensors(t *text, s *State) {
	for sensor, d := range telemetry.Declared {
		e := export(d)
		m.writeSensor(t, s, sensor, e, func(Rank) bool { return true })
		if d.DCGM != "" {
			m.writeSensor(t, s, sensor, exported{d.DCGM, "gauge", "Sensor " + d.Name + " of the rank's GPU (" + d.Unit +
				").", 1}, func(r Rank) bool { return r.GPU })
		}
	}
}

func (m *Metrics) writeSensor(t *text, s *State, sensor int, e exported, has func(Rank) bool) {
	begun := false
	for i, r := range m.run.Ranks {
		v := s.Ranks[i].Sensors[sensor]
		if v != v || !has(r) { // NaN: unknown
			continue
		}
		if !begun {
			begun = true
			t.family(e.name, e.kind, e.help)
		}
		t.sample(v*e.factor, label{"rank", m.numbers[i]})
	}
}
