package telemetry

import (
	"math"
	"testing"
)

func TestEverySensorIsDeclared(t *testing.T) {
	names, columns := map[string]bool{}, map[string]bool{}
	for i, d := range Declared {
		if d.Name == "" || names[d.Name] {
			t.Errorf("sensor %d: got name %q, want one of its own", i, d.Name)
		}
		if d.Column != "" && columns[d.Column] {
			t.Errorf("%s: another sensor has the column %q", d.Name, d.Column)
		}
		if (d.Sign == nil) != (d.Cause == "") {
			t.Errorf("%s: got cause %q and a sign %v, want both or neither", d.Name, d.Cause, d.Sign != nil)
		}
		names[d.Name], columns[d.Column] = true, true
	}
}

func TestNothingKnownIsNoSign(t *testing.T) {
	var w Window
	now, healthy := w.Summary(), Unknown()
	for _, d := range Declared {
		if d.Sign == nil {
			continue
		}
		if text := d.Sign(&now, &healthy); text != "" {
			t.Errorf("%s: got %q, want no sign", d.Name, text)
		}
	}
}

func TestSummaryOfAWindow(t *testing.T) {
	var w Window
	if s := w.Summary(); !math.IsNaN(s.Value[Clock]) || s.Samples[Clock] != 0 {
		t.Errorf("empty: got %+v", s)
	}
	add := func(figures map[Sensor]float64) {
		s := Unknown()
		for sensor, v := range figures {
			s[sensor] = v
		}
		w.Add(&s)
	}
	add(map[Sensor]float64{Clock: 50, ECCErrors: 7, PowerLimit: 1, ThermalThrottling: 1, Power: 250})
	add(map[Sensor]float64{Clock: 100, ECCErrors: 10, PowerLimit: 1, ThermalThrottling: 0, PCIe: 25, OtherProcesses: 2})
	add(map[Sensor]float64{ECCErrors: 12, PCIe: 100, OtherProcesses: 1})
	s := w.Summary()
	for sensor, want := range map[Sensor]float64{Clock: 75, Power: 250, ECCErrors: 5, PCIe: 25, OtherProcesses: 2,
		PowerLimit:        1,
		ThermalThrottling: 0.5} {
		if s.Value[sensor] != want {
			t.Errorf("%s: got %v, want %v", Declared[sensor].Name, s.Value[sensor], want)
		}
	}
	if !math.IsNaN(s.Value[StolenCPU]) || s.Samples[PowerLimit] != 2 || s.Samples[Power] != 1 {
		t.Errorf("got %+v", s)
	}
	w.Reset()
	if s = w.Summary(); s.Samples != [Count]int{} {
		t.Errorf("after Reset: got %+v, want an empty window", s)
	}
	add(map[Sensor]float64{ECCErrors: 13})
	if s = w.Summary(); s.Value[ECCErrors] != 1 {
		t.Errorf("a counter after Reset: got %v, want its increase, 1", s.Value[ECCErrors])
	}
	add(map[Sensor]float64{ECCErrors: 2}) // smaller than before, because the driver was loaded again
	add(map[Sensor]float64{ECCErrors: 4})
	if s = w.Summary(); s.Value[ECCErrors] != 3 {
		t.Errorf("a counter that started again: got %v, want 3", s.Value[ECCErrors])
	}
}
