package system

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestDisksOfFakeMachines(t *testing.T) {
	h, err := Read(xeon().with(machine{
		"sys/block/nvme0n1/size": "7501476528\n", "sys/block/nvme0n1/queue/rotational": "0\n",
		"sys/block/nvme0n1/device/model": "Samsung SSD 990\n",
		"sys/block/sda/size":             "1953525168\n", "sys/block/sda/queue/rotational": "1\n",
		"sys/block/sda/device/model": "ST1000\n",
		"sys/block/vda/size":         "2048\n", "sys/block/vda/queue/rotational": "0\n",
		"sys/block/loop0/size": "8\n", "sys/block/zram0/size": "8\n", "sys/block/dm-0/size": "8\n",
		"sys/block/sr0/size": "8\n", "sys/block/sdb/size": "0\n",
	}).fs())
	want := []Disk{{"nvme0n1", "Samsung SSD 990", "nvme", 7501476528 * 512}, {"sda", "ST1000", "hdd", 1953525168 * 512},
		{"vda", "", "ssd", 1 << 20}}
	if err != nil || !slices.Equal(h.Disks, want) {
		t.Errorf("got %+v, %v, want %+v", h.Disks, err, want)
	}
	if _, err := Read(xeon().with(machine{"sys/block/sda/size": "many\n"}).fs()); err == nil {
		t.Error("a size that is no number: no error")
	}
}

func TestNetworksOfFakeMachines(t *testing.T) {
	h, err := Read(xeon().with(machine{
		"sys/class/net/lo/type": "772\n", "sys/class/net/lo/operstate": "unknown\n",
		"sys/class/net/eth0/type": "1\n", "sys/class/net/eth0/operstate": "up\n", "sys/class/net/eth0/speed": "1000\n",
		"sys/class/net/eth0/mtu": "1500\n", "sys/class/net/eth0/device/vendor": "0x8086\n",
		"sys/class/net/eth1/type": "1\n", "sys/class/net/eth1/operstate": "down\n", "sys/class/net/eth1/speed": "-1\n",
		"sys/class/net/eth1/device/vendor": "0x8086\n",
		"sys/class/net/wlan0/type":         "1\n", "sys/class/net/wlan0/operstate": "up\n",
		"sys/class/net/wlan0/wireless/x": "", "sys/class/net/wlan0/device/x": "", "sys/class/net/wlan0/mtu": "1500\n",
		"sys/class/net/ib0/type": "32\n", "sys/class/net/ib0/operstate": "up\n", "sys/class/net/ib0/speed": "400000\n",
		"sys/class/net/ib0/mtu":      "4092\n",
		"sys/class/net/docker0/type": "1\n", "sys/class/net/docker0/operstate": "down\n",
		"sys/class/net/bonding_masters": "bond0\n",
	}).fs())
	want := []Network{{"ib0", "infiniband", true, 400000, 4092}, {"eth0", "ethernet", true, 1000, 1500},
		{"wlan0", "wireless", true, 0, 1500},
		{"docker0", "virtual", false, 0, 0}, {"eth1", "ethernet", false, 0, 0}}
	if err != nil || !slices.Equal(h.Networks, want) {
		t.Errorf("got %+v, %v, want %+v", h.Networks, err, want)
	}
}

func TestSensorsOfFakeMachines(t *testing.T) {
	const rapl = "sys/class/powercap/intel-rapl:"
	server := machine{
		"sys/class/hwmon/hwmon0/name": "nvme\n", "sys/class/hwmon/hwmon0/temp1_input": "30000\n",
		"sys/class/hwmon/hwmon3/name": "k10temp\n", "sys/class/hwmon/hwmon3/temp1_input": "71500\n",
		rapl + "0/energy_uj": "1000000\n", rapl + "0/max_energy_range_uj": "10000000\n",
		rapl + "1/energy_uj": "9000000\n", rapl + "1/max_energy_range_uj": "10000000\n",
		rapl + "0:0/energy_uj":                               "77000000\n", // this counter covers a part of socket 0
		firstCPU + "cpufreq/scaling_cur_freq":                "1800000\n",
		firstCPU + "cpufreq/cpuinfo_max_freq":                "3600000\n",
		firstCPU + "thermal_throttle/package_throttle_count": "5\n",
		"sys/class/thermal/thermal_zone0/type":               "acpitz\n",
		"sys/class/thermal/thermal_zone0/temp":               "20000\n",
	}
	files := server.fs()
	now := time.Unix(1000, 0)
	s := newSensorSampler(files, func() time.Time { return now })
	now = now.Add(2 * time.Second)
	files[rapl+"0/energy_uj"].Data = []byte("7000000\n") // the counter has advanced by 6 J
	files[rapl+"1/energy_uj"].Data = []byte("3000000\n") // the counter has advanced by 4 J, and has wrapped around
	got := s.Sample()
	if got.TemperatureCelsius != 71.5 || math.Abs(got.PowerWatts-5) > 1e-9 || got.ClockPercent != 50 ||
		got.Throttled != 0 {
		t.Errorf("got %+v, want 71.5 degrees, 5 W, half the clock", got)
	}
	files[firstCPU+"thermal_throttle/package_throttle_count"].Data = []byte("6\n")
	if s.Sample().Throttled != 1 || s.Sample().Throttled != 0 {
		t.Error("a throttle count that rises once is one throttled sample")
	}
	board := machine{"sys/class/thermal/thermal_zone1/type": "cpu-thermal\n",
		"sys/class/thermal/thermal_zone1/temp": "55000\n"}
	if got := newSensorSampler(board.fs(), time.Now).Sample(); got.TemperatureCelsius != 55 ||
		!math.IsNaN(got.PowerWatts) || !math.IsNaN(got.ClockPercent) {
		t.Errorf("a board without other sensors: got %+v", got)
	}
	if got := newSensorSampler(machine{}.fs(), time.Now).Sample(); !math.IsNaN(got.TemperatureCelsius) ||
		!math.IsNaN(got.Throttled) {
		t.Errorf("a virtual machine: got %+v, want nothing known", got)
	}
}
