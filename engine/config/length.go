package config

import (
	"fmt"
	"math"
	"slices"
)

// Length is the length of a run.
type Length struct {
	Steps         int64 // 0: unknown
	StepsPerEpoch int64
	Seconds       float64 // time limit; 0: none
}

// Silent marks a key whose value is a span of steps, epochs, evaluations or seconds. The key has no effect in a run
// that is shorter than the span. The parameter why completes the sentence "the run has N steps, so …". A span of 0
// switches the key off. Each element of a list is a span.
func (k Key) Silent(why string) Key { k.silent = why; return k }

// SilentAtEnd is Silent for a span that also has no effect in a run of exactly this length.
func (k Key) SilentAtEnd(why string) Key { k.silent, k.atEnd = why, true; return k }

// BeyondEnd returns a warning for each key whose span is longer than the run. It omits keys that have no effect for
// another reason, and usual defaults. It includes defaults of the model, and defaults that apply because another key is
// set.
func (c *Config) BeyondEnd(run Length) (warnings []string) {
	values, _ := c.flat()
	keys := c.keys()
	for _, t := range c.tables() {
		for _, k := range t.keys {
			key := t.name + "." + k.name
			at, from := c.origins[key], c.DefaultOf(key)
			ownDefault, chosen := from == c.Model.Name, c.chooses(k)
			if k.silent == "" || at == (origin{}) && !ownDefault && !chosen || !at.typed() && !ownDefault && !chosen &&
				values[key] == formatValue(k.def) {
				continue
			}
			length, unit := run.in(k.unit, int64(c.Train.EvalInterval))
			if length <= 0 || !k.beyond(length) || c.unusedBecause(t.name, k.Only(t.needs...), at, values, keys) != "" {
				continue
			}
			source := at.String()
			switch {
			case ownDefault:
				source = "default of " + from
			case at == (origin{}):
				source = "default"
			}
			warnings = append(warnings, fmt.Sprintf("%s = %s (%s) is not shorter than the run: the run has %s, so %s",
				key, values[key], source, unit, k.silent))
		}
	}
	return warnings
}

// chooses reports whether the user set a key that makes k effective, such as schedule.name for schedule.step_size.
func (c *Config) chooses(k Key) bool {
	return slices.ContainsFunc(k.needs, func(n Need) bool {
		return slices.ContainsFunc(append(slices.Clip(n.any), n), func(n Need) bool {
			return c.origins[n.key] != (origin{})
		})
	})
}

// in returns the length of the run in a unit, as a number and as text. The number is 0 if the length is unknown. The
// parameter interval is the number of epochs between two evaluations.
func (r Length) in(unit string, interval int64) (length float64, text string) {
	steps := fmt.Sprintf("%d steps", r.Steps)
	switch {
	case unit == "s":
		return r.Seconds, fmt.Sprintf("at most %s s", formatFloat(r.Seconds))
	case unit == "epochs" && r.StepsPerEpoch > 0:
		length = float64(r.Steps) / float64(r.StepsPerEpoch)
		return length, fmt.Sprintf("%s (%.4g epochs)", steps, length)
	case unit == "evaluations" && r.StepsPerEpoch > 0 && interval > 0:
		length = math.Ceil(float64(r.Steps) / float64(r.StepsPerEpoch*interval))
		return length, fmt.Sprintf("%.0f evaluations", length)
	case unit == "steps" || unit == "":
		return float64(r.Steps), steps
	}
	return 0, ""
}

// beyond reports whether a span of the key is longer than length.
func (k Key) beyond(length float64) bool {
	beyond := func(span float64) bool { return span > length || k.atEnd && span == length }
	switch field := k.field.(type) {
	case *int:
		return beyond(float64(*field))
	case *float64:
		return beyond(*field)
	case *[]int:
		for _, span := range *field {
			if beyond(float64(span)) {
				return true
			}
		}
	}
	return false
}
