package telemetry

import (
	"math"
	"testing"
)

func TestTrafficFromCounters(t *testing.T) {
	nan := math.NaN()
	var m Meter
	for _, c := range []struct {
		name           string
		at             float64 // in s
		sent, received float64 // values of the counters
		want           Traffic
	}{
		{"first measurement", 5, 1000, 7, Traffic{nan, nan, 0, 0}},
		{"half a second later", 5.5, 1500, 7, Traffic{1000, 0, 500, 0}},
		{"a counter cannot be read", 6, 1600, nan, Traffic{200, nan, 600, nan}},
		{"it can be read again", 7, 1600, 100, Traffic{0, nan, 600, 0}},
		{"a counter started again", 8, 10, 300, Traffic{nan, 200, 600, 200}},
		{"and continues", 10, 30, 300, Traffic{10, 0, 620, 200}},
		{"no time has passed", 10, 40, 300, Traffic{nan, nan, 630, 200}},
	} {
		got := m.Add(c.at, c.sent, c.received)
		for i, v := range [][2]float64{{got.Sent, c.want.Sent}, {got.Received, c.want.Received},
			{got.SentBytes, c.want.SentBytes}, {got.ReceivedBytes, c.want.ReceivedBytes}} {
			if v[0] != v[1] && !(math.IsNaN(v[0]) && math.IsNaN(v[1])) {
				t.Errorf("%s: value %d: got %v, want %v", c.name, i, v[0], v[1])
			}
		}
	}
}

func TestTrafficSensorsAreSumsByKind(t *testing.T) {
	nan := math.NaN()
	links := []Link{{Kind: LinkNetwork, Name: "eth0"}, {Kind: LinkNetwork, Name: "eth1"},
		{Kind: LinkNetwork, Name: "eth2"}, {Kind: LinkLoopback, Name: "lo"}, {Kind: LinkVirtual, Name: "docker0"},
		{Kind: LinkRDMA, Name: "mlx5_0/1"}, {Kind: LinkPCIe, Name: "pcie"}}
	traffic := []Traffic{{Sent: 1, Received: 10}, {Sent: 2, Received: 20}, {Sent: nan, Received: 30},
		{Sent: 400, Received: 400}, {Sent: 500, Received: 500}, {Sent: 0, Received: nan}, {Sent: nan, Received: nan}}
	s := Unknown()
	PutTraffic(&s, links, traffic)
	for sensor, want := range map[Sensor]float64{NetworkSent: 3, NetworkReceived: 60, RDMASent: 0, RDMAReceived: nan,
		PCIeSent: nan, PCIeReceived: nan, NVLinkSent: nan} {
		if got := s[sensor]; got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Errorf("%s: got %v, want %v", Declared[sensor].Name, got, want)
		}
	}
}
