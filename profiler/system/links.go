package system

import (
	"cmp"
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

// mostLinks is the largest number of network interfaces and RDMA ports that a LinkSampler measures. A server with eight
// GPUs has about ten interfaces and eight RDMA ports. A host of containers can have hundreds of virtual interfaces.
const mostLinks = 32

// LinkSampler measures the traffic of the network interfaces and the RDMA ports of this machine, or of this container's
// network namespace. Only one goroutine at a time may use it.
//
// It reads the byte counters of the kernel: /sys/class/net/*/statistics and /sys/class/infiniband/*/ports/*/counters.
// An interface or port that is added later is not measured.
type LinkSampler struct {
	root  fs.FS
	now   func() time.Duration // monotonic
	ports []port
}

// port is an interface or an RDMA port with its counters.
type port struct {
	link           telemetry.Link
	sent, received string  // files of the counters
	unit           float64 // bytes per count
	meter          telemetry.Meter
}

// NewLinkSampler finds the links of this machine that are up.
func NewLinkSampler() *LinkSampler {
	begin := time.Now()
	return newLinkSampler(os.DirFS("/"), func() time.Duration { return time.Since(begin) })
}

func newLinkSampler(root fs.FS, now func() time.Duration) *LinkSampler {
	s := &LinkSampler{root: root, now: now, ports: append(findRDMA(root), findInterfaces(root)...)}
	s.ports = s.ports[:min(len(s.ports), mostLinks)]
	return s
}

// Links describes the links: RDMA ports, then interfaces, the loopback last.
func (s *LinkSampler) Links() []telemetry.Link {
	links := make([]telemetry.Link, len(s.ports))
	for i := range s.ports {
		links[i] = s.ports[i].link
	}
	return links
}

// Sample measures the traffic of the links, in the order of Links. Values of a link that cannot be read are unknown. The
// rates of the first call are unknown.
func (s *LinkSampler) Sample(into []telemetry.Traffic) {
	for i := range s.ports {
		p := &s.ports[i]
		into[i] = p.meter.Add(s.now().Seconds(), p.read(s.root, p.sent), p.read(s.root, p.received))
	}
}

// read returns a counter in bytes, or NaN.
func (p *port) read(root fs.FS, file string) float64 {
	if file == "" {
		return math.NaN()
	}
	line, err := readLine(root, file)
	if err != nil {
		return math.NaN()
	}
	n, err := strconv.ParseUint(line, 10, 64)
	if err != nil || p.unit == wordBytes && n == math.MaxUint32 {
		return math.NaN()
	}
	return p.unit * float64(n)
}

// rankOfKind sorts the interfaces, so that the limit drops the least important ones.
var rankOfKind = map[telemetry.LinkKind]int{telemetry.LinkNetwork: 0, telemetry.LinkVirtual: 1, telemetry.LinkLoopback: 2}

// findInterfaces returns the network interfaces that are up. If interfaces with hardware are up, they connect the
// machine with others, and the traffic of other interfaces passes them or stays in the machine. Otherwise, as in a
// container, the virtual interfaces are the connection.
func findInterfaces(root fs.FS) (ports []port) {
	folders, _ := fs.Glob(root, "sys/class/net/*") // the pattern is valid
	hardware := false
	for _, folder := range folders {
		kind, err := readLine(root, path.Join(folder, "type"))
		if err != nil { // files without a type are not interfaces (bonding_masters)
			continue
		}
		exists := func(name string) bool {
			_, err := fs.Stat(root, path.Join(folder, name))
			return err == nil
		}
		state, _ := readLine(root, path.Join(folder, "operstate")) // "unknown": the driver does not report a state
		physical := exists("device")
		if state != "up" && state != "unknown" || !physical && exists("master") { // master: a bridge has the same traffic
			continue
		}
		p := port{unit: 1, sent: path.Join(folder, "statistics/tx_bytes"), received: path.Join(folder, "statistics/rx_bytes")}
		p.link = telemetry.Link{Kind: telemetry.LinkVirtual, Name: path.Base(folder), Basis: telemetry.BasisCounter}
		switch {
		case kind == arpLoopback:
			p.link.Kind = telemetry.LinkLoopback
		case physical:
			p.link.Kind, hardware = telemetry.LinkNetwork, true
		}
		if physical || exists("bonding") { // other drivers, such as veth, report a speed that limits nothing
			p.link.Limit = float64(positive(root, path.Join(folder, "speed"))) * 1e6 / 8
		}
		ports = append(ports, p)
	}
	for i := range ports {
		if l := &ports[i].link; !hardware && l.Kind == telemetry.LinkVirtual {
			_, err := fs.Stat(root, path.Join("sys/class/net", l.Name, "bridge"))
			if err != nil { // not a bridge within the machine
				l.Kind = telemetry.LinkNetwork
			}
		}
	}
	slices.SortStableFunc(ports, func(a, b port) int { return cmp.Compare(rankOfKind[a.link.Kind], rankOfKind[b.link.Kind]) })
	return ports
}

// wordBytes is the unit of the counters of InfiniBand, in bytes. On old devices, these counters have 32 bits and stop at
// their largest value.
const wordBytes = 4

// rdmaCounters are the files of an RDMA port, in the order of preference. Amazon's EFA counts bytes.
var rdmaCounters = []struct {
	sent, received string
	unit           float64
}{
	{"counters_ext/port_xmit_data_64", "counters_ext/port_rcv_data_64", wordBytes},
	{"counters/port_xmit_data", "counters/port_rcv_data", wordBytes},
	{"hw_counters/tx_bytes", "hw_counters/rx_bytes", 1},
}

// findRDMA returns the active RDMA ports. A port without a counter is listed too, with its limit.
func findRDMA(root fs.FS) (ports []port) {
	folders, _ := fs.Glob(root, "sys/class/infiniband/*/ports/*") // the pattern is valid
	for _, folder := range folders {
		state, _ := readLine(root, path.Join(folder, "state")) // for example "4: ACTIVE"
		if !strings.HasSuffix(state, "ACTIVE") {
			continue
		}
		device := path.Base(path.Dir(path.Dir(folder)))
		p := port{link: telemetry.Link{Kind: telemetry.LinkRDMA, Name: device + "/" + path.Base(folder), Limit: rdmaRate(root, folder), Basis: telemetry.BasisCounter}}
		for _, c := range rdmaCounters {
			if _, err := fs.Stat(root, path.Join(folder, c.sent)); err == nil {
				p.sent, p.received, p.unit = path.Join(folder, c.sent), path.Join(folder, c.received), c.unit
				break
			}
		}
		ports = append(ports, p)
	}
	return ports
}

// rdmaRate returns the rate of a port in bytes/s, or 0. The file contains a text such as "100 Gb/sec (4X EDR)".
func rdmaRate(root fs.FS, folder string) float64 {
	line, _ := readLine(root, path.Join(folder, "rate"))
	value, unit, _ := strings.Cut(line, " ")
	gigabits, err := strconv.ParseFloat(value, 64)
	if err != nil || !(gigabits > 0) || !strings.HasPrefix(unit, "Gb/sec") {
		return 0
	}
	return gigabits * 1e9 / 8
}
