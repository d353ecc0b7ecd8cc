package system

import (
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// iface returns the files of a network interface. more contains names and contents of further files.
func iface(name, kind, state string, sent, received uint64, more ...string) machine {
	folder := "sys/class/net/" + name + "/"
	m := machine{folder + "type": kind + "\n", folder + "operstate": state + "\n",
		folder + "statistics/tx_bytes": fmt.Sprintln(sent), folder + "statistics/rx_bytes": fmt.Sprintln(received)}
	for i := 0; i < len(more); i += 2 {
		m[folder+more[i]] = more[i+1] + "\n"
	}
	return m
}

func together(all ...machine) machine {
	out := machine{}
	for _, m := range all {
		out = out.with(m)
	}
	return out
}

func rdmaPort(device string, number int, state, rate string) machine {
	folder := fmt.Sprintf("sys/class/infiniband/%s/ports/%d/", device, number)
	return machine{folder + "state": state + "\n", folder + "rate": rate + "\n"}
}

func TestLinksOfFakeMachines(t *testing.T) {
	const counted = telemetry.BasisCounter
	for _, c := range []struct {
		name string
		tree machine
		want []telemetry.Link
	}{
		{"no files", machine{}, []telemetry.Link{}},
		{"a server", together(
			iface("lo", "772", "unknown", 1, 1), machine{"sys/class/net/bonding_masters": "\n"},
			iface("eth0", "1", "up", 1, 1, "device/vendor", "0x8086", "speed", "25000"),
			iface("eth1", "1", "down", 1, 1, "device/vendor", "0x8086", "speed", "-1"),
			iface("docker0", "1", "up", 1, 1, "bridge/stp_state", "0"), iface("veth1", "1", "up", 1, 1, "speed",
				"10000", "master/type", "1"), iface("tun0", "65534", "unknown", 1, 1, "speed", "10000"),
			rdmaPort("mlx5_0", 1, "4: ACTIVE", "400 Gb/sec (4X NDR)"),
			rdmaPort("mlx5_1", 1, "1: DOWN", "10 Gb/sec (4X)"), rdmaPort("mlx5_2", 1, "4: ACTIVE", "fast"),
		), []telemetry.Link{
			{Kind: telemetry.LinkRDMA, Name: "mlx5_0/1", Limit: 50e9, Basis: counted},
			{Kind: telemetry.LinkRDMA, Name: "mlx5_2/1", Basis: counted},
			{Kind: telemetry.LinkNetwork, Name: "eth0", Limit: 3.125e9, Basis: counted},
			{Kind: telemetry.LinkVirtual, Name: "docker0", Basis: counted},
			{Kind: telemetry.LinkVirtual, Name: "tun0", Basis: counted},
			{Kind: telemetry.LinkLoopback, Name: "lo", Basis: counted}}},
		{"a bond", together(iface("bond0", "1", "up", 1, 1, "speed", "2000", "bonding/mode", "x"),
			iface("eth0", "1", "up", 1, 1, "device/x", "", "speed", "1000", "master/type", "1"),
			iface("eth1", "1", "up", 1, 1, "device/x", "", "speed", "1000", "master/type", "1")),
			[]telemetry.Link{{Kind: telemetry.LinkNetwork, Name: "eth0", Limit: 1.25e8, Basis: counted},
				{Kind: telemetry.LinkNetwork, Name: "eth1", Limit: 1.25e8, Basis: counted},
				{Kind: telemetry.LinkVirtual, Name: "bond0", Limit: 2.5e8, Basis: counted}}},
		{"a container", together(iface("lo", "772", "unknown", 1, 1), iface("eth0", "1", "up", 1, 1, "speed", "10000"),
			iface("br0", "1", "up", 1, 1, "bridge/x", "")),
			[]telemetry.Link{{Kind: telemetry.LinkNetwork, Name: "eth0", Basis: counted}, {Kind: telemetry.LinkVirtual,
				Name: "br0", Basis: counted}, {Kind: telemetry.LinkLoopback, Name: "lo", Basis: counted}}},
	} {
		if got := newLinkSampler(c.tree.fs(), nil, func() time.Duration { return 0 }).Links(); !reflect.DeepEqual(got,
			c.want) {
			t.Errorf("%s: got\n%+v\nwant\n%+v", c.name, got, c.want)
		}
	}
	var many []machine
	for i := range 100 {
		many = append(many, iface(fmt.Sprintf("cali%02d", i), "1", "up", 1, 1))
	}
	many = append(many, iface("eth0", "1", "up", 1, 1, "device/x", ""))
	if got := newLinkSampler(together(many...).fs(), nil, nil).Links(); len(got) != mostLinks || got[0].Name != "eth0" {
		t.Errorf("101 interfaces: got %d links, the first is %+v, want %d and eth0", len(got), got[0], mostLinks)
	}
}

func TestTrafficOfFakeMachines(t *testing.T) {
	const words = "sys/class/infiniband/mlx5_0/ports/1/counters/"
	const old = "sys/class/infiniband/mthca0/ports/1/counters/"
	const efa = "sys/class/infiniband/rdmap0/ports/1/hw_counters/"
	files := together(iface("eth0", "1", "up", 1000, 5000, "device/x", ""),
		rdmaPort("mlx5_0", 1, "4: ACTIVE", "100 Gb/sec (4X EDR)"),
		machine{words + "port_xmit_data": "100\n", words + "port_rcv_data": "200\n"},
		rdmaPort("mthca0", 1, "4: ACTIVE", "10 Gb/sec (4X)"),
		machine{old + "port_xmit_data": "4294967295\n", old + "port_rcv_data": "7\n"},
		rdmaPort("none0", 1, "4: ACTIVE", "10 Gb/sec (4X)"),
		rdmaPort("rdmap0", 1, "4: ACTIVE", "100 Gb/sec"), machine{efa + "tx_bytes": "10\n", efa + "rx_bytes": "10\n"}).
		fs()
	now := time.Minute
	s := newLinkSampler(files, nil, func() time.Duration { return now })
	got := make([]telemetry.Traffic, len(s.Links()))
	at := map[string]int{}
	for i, l := range s.Links() {
		at[l.Name] = i
	}
	set := func(file, text string) { files[file].Data = []byte(text) }
	check := func(when, link string, want telemetry.Traffic) {
		t.Helper()
		if g := fmt.Sprint(got[at[link]]); g != fmt.Sprint(want) {
			t.Errorf("%s: %s: got %v, want %v", when, link, g, want)
		}
	}
	nan := math.NaN()
	s.Sample(got)
	for link := range at {
		if v := got[at[link]]; !math.IsNaN(v.Sent) || !math.IsNaN(v.Received) {
			t.Errorf("%s: first sample: got %+v, want unknown rates", link, v)
		}
	}
	now += 2 * time.Second
	set("sys/class/net/eth0/statistics/tx_bytes", "3000\n")
	set(words+"port_xmit_data", "1100\n")
	set(efa+"tx_bytes", "30\n")
	s.Sample(got)
	check("2 s later", "eth0", telemetry.Traffic{Sent: 1000, SentBytes: 2000})
	// The counter counts words of 4 bytes.
	check("2 s later", "mlx5_0/1", telemetry.Traffic{Sent: 2000, SentBytes: 4000})
	check("2 s later", "mthca0/1", telemetry.Traffic{Sent: nan, SentBytes: nan}) // the counter has stopped
	check("2 s later", "none0/1", telemetry.Traffic{Sent: nan, Received: nan, SentBytes: nan, ReceivedBytes: nan})
	check("2 s later", "rdmap0/1", telemetry.Traffic{Sent: 10, SentBytes: 20})
	now += time.Second
	delete(files, "sys/class/net/eth0/statistics/tx_bytes") // the interface has been removed
	delete(files, "sys/class/net/eth0/statistics/rx_bytes")
	set(words+"port_rcv_data", "no number\n")
	s.Sample(got)
	check("removed", "eth0", telemetry.Traffic{Sent: nan, Received: nan, SentBytes: nan, ReceivedBytes: nan})
	check("no number", "mlx5_0/1", telemetry.Traffic{Sent: 0, SentBytes: 4000, Received: nan, ReceivedBytes: nan})
}

// trafficOf returns the traffic of a link of this machine while do runs. It includes that of other programs. The link
// must send or receive at least bytes.
func trafficOf(t *testing.T, name string, bytes float64, do func()) telemetry.Traffic {
	t.Helper()
	s := NewLinkSampler()
	at := slices.IndexFunc(s.Links(), func(l telemetry.Link) bool { return l.Name == name })
	if at < 0 {
		t.Fatalf("got links %+v, want %s", s.Links(), name)
	}
	got := make([]telemetry.Traffic, len(s.Links()))
	s.Sample(got)
	do()
	counted(s, got, func() bool { return got[at].SentBytes >= bytes || got[at].ReceivedBytes >= bytes })
	return got[at]
}

// counted samples the links until the kernel has counted the packets, for at most a minute. Each sample covers at least
// 10 ms.
func counted(s *LinkSampler, got []telemetry.Traffic, enough func() bool) {
	for limit := time.Now().Add(time.Minute); time.Now().Before(limit); {
		time.Sleep(10 * time.Millisecond)
		if s.Sample(got); enough() {
			return
		}
	}
}

// send sends bytes to a UDP address, where no program needs to listen.
func send(t *testing.T, address string, bytes int) {
	t.Helper()
	conn, err := net.Dial("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for sent := 0; sent < bytes; sent += 1000 {
		_, _ = conn.Write(make([]byte, 1000)) // may return the error of an earlier packet that was refused
	}
}

func TestTrafficOfTheLoopback(t *testing.T) {
	if _, err := os.Stat("/sys/class/net/lo/statistics/tx_bytes"); err != nil {
		needtest.Missing(t, "system", err)
	}
	got := trafficOf(t, "lo", 500_000, func() { send(t, "127.0.0.1:9", 1_000_000) })
	if !(got.SentBytes >= 500_000) || !(got.Sent > 0) || !(got.ReceivedBytes >= 500_000) {
		// Half of the packets are sufficient, because the kernel may drop some.
		t.Errorf("sent 1 MB: got %+v, want at least half of it", got)
	}
}

func TestTrafficOfAVirtualPair(t *testing.T) {
	run := func(args ...string) {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			needtest.Programs(t, "iproute2", "ip")
			needtest.Missing(t, "namespaces", fmt.Sprintf("ip %v: %v: %s", args, err, out))
		}
	}
	run("link", "add", "htveth0", "type", "veth", "peer", "name", "htveth1")
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", "htveth0").Run() })
	run("addr", "add", "198.18.77.1/24", "dev", "htveth0")
	run("link", "set", "htveth0", "up")
	run("link", "set", "htveth1", "up")
	run("neigh", "replace", "198.18.77.2", "lladdr", "02:00:00:00:00:02", "dev", "htveth0")
	for limit := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if state, _ := os.ReadFile("/sys/class/net/htveth0/operstate"); string(state) == "up\n" {
			break
		}
		if time.Now().After(limit) {
			t.Fatal("the interface htveth0 is not up after a minute")
		}
	}
	got := trafficOf(t, "htveth0", 1_000_000, func() { send(t, "198.18.77.2:9", 1_000_000) })
	if !(got.SentBytes >= 1_000_000 && got.SentBytes < 1_200_000) || !(got.Sent > 0) {
		t.Errorf("sent 1 MB: got %+v, want this and the headers", got)
	}
	peer := trafficOf(t, "htveth1", 1_000_000, func() { send(t, "198.18.77.2:9", 1_000_000) })
	if !(peer.ReceivedBytes >= 1_000_000 &&
		peer.ReceivedBytes < 1_200_000) {
		t.Errorf("the other end received %+v, want 1 MB and the headers", peer)
	}
}

func BenchmarkLinkSampler(b *testing.B) {
	s := NewLinkSampler()
	into := make([]telemetry.Traffic, len(s.Links()))
	for b.Loop() {
		s.Sample(into)
	}
	b.ReportMetric(float64(len(into)), "links")
}
