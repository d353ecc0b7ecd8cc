package session

import (
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/lab"
	"github.com/hetero-train/hetero-train/engine/regular"
	"github.com/hetero-train/hetero-train/engine/weather"
)

// TestbedSetup contains the settings of the testbed from the configuration and the environment; see docs/lab.md.
type TestbedSetup struct {
	Setup   lab.Setup
	Weather *weather.Weather // scenario; nil if there is none
	Name    string           // name of the scenario's file
}

// mostWeather is the maximum size of a scenario file, bytes.
const mostWeather = 1 << 20

// ReadTestbed reads the settings of the testbed and the scenario file. lookup returns the value of an environment
// variable.
func ReadTestbed(cfg *config.Config, lookup func(name string) (value string, set bool)) (s TestbedSetup, err error) {
	if s.Setup, err = lab.Find(lookup); err != nil {
		return s, exit.With(exit.Usage, err)
	}
	path := cfg.Lab.Weather
	if path == "" {
		return s, nil
	}
	text, err := regular.Read(path, mostWeather)
	if err != nil {
		return s, exit.Usagef("lab.weather: %w", err)
	}
	s.Name = filepath.Base(path)
	s.Weather, err = weather.Parse(path, text)
	return s, exit.With(exit.Usage, err)
}

// Fact returns a text that identifies the scenario. The text must be equal on all ranks.
func (s *TestbedSetup) Fact() string {
	if s.Weather == nil {
		return "none"
	}
	return s.Weather.String()
}

// Slow slows down the device by the factor Slowdown.
func (s *TestbedSetup) Slow(dev device.Device, log *slog.Logger) error {
	factor := s.Setup.Slowdown
	if factor <= 1 {
		return nil
	}
	slowable, ok := dev.(device.Slowable)
	if !ok {
		return exit.Usagef("environment variable %s: got %v, but device %s cannot be slowed down", lab.SlowdownVariable,
			factor, dev.Info().Name)
	}
	if err := slowable.SetSlowdown(factor); err != nil {
		return exit.Usagef("environment variable %s: %w", lab.SlowdownVariable, err)
	}
	if log != nil {
		log.Warn(fmt.Sprintf("simulated slowdown x%.3g: the device is idle after its work", factor), "device",
			dev.Info().Name, "from", lab.SlowdownVariable)
	}
	return nil
}
