package system

import (
	"cmp"
	"io/fs"
	"math"
	"net"
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
// network namespace. It is not safe for concurrent use.
//
// It reads the byte counters of the kernel: /proc/thread-self/net/dev and /sys/class/infiniband/*/ports/*/counters. An
// interface or port that is added later is not measured. Its RDMA ports belong to the network namespace in which /sys
// was mounted.
type LinkSampler struct {
	root   fs.FS
	now    func() time.Duration // monotonic
	ports  []port
	counts map[string]counters // counters of each interface; nil: they are read from the files of the ports
}

// counters contains the byte counters of an interface.
type counters struct{ sent, received float64 }

// port is an interface or an RDMA port with its counters.
type port struct {
	link           telemetry.Link
	sent, received string  // files of the counters
	unit           float64 // bytes for an increase by 1
	meter          telemetry.Meter
	bridge         bool // the port is a bridge, which connects interfaces within the machine
}

// NewLinkSampler finds the links of this machine that are up.
func NewLinkSampler() *LinkSampler {
	begin := time.Now()
	return newLinkSampler(os.DirFS("/"), ownInterfaces(), func() time.Duration { return time.Since(begin) })
}

// newLinkSampler finds the links in root. The list own contains the interfaces of the network namespace; nil means the
// interfaces in root/sys.
func newLinkSampler(root fs.FS, own []net.Interface, now func() time.Duration) *LinkSampler {
	s := &LinkSampler{root: root, now: now, ports: append(findRDMA(root), findInterfaces(root, own)...)}
	s.ports = s.ports[:min(len(s.ports), mostLinks)]
	if own != nil {
		s.counts = map[string]counters{}
	}
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

// Sample measures the traffic of the links, in the order of Links. If a link cannot be read, its values are unknown. In
// the first call, all rates are unknown.
func (s *LinkSampler) Sample(into []telemetry.Traffic) {
	if s.counts != nil {
		readCounters(s.root, s.counts)
	}
	for i := range s.ports {
		p := &s.ports[i]
		sent, received := p.read(s.root, p.sent), p.read(s.root, p.received)
		if s.counts != nil && p.link.Kind != telemetry.LinkRDMA {
			sent, received = math.NaN(), math.NaN()
			if c, found := s.counts[p.link.Name]; found {
				sent, received = c.sent, c.received
			}
		}
		into[i] = p.meter.Add(s.now().Seconds(), sent, received)
	}
}

// readCounters reads the counters of all interfaces of this thread's network namespace. /sys/class/net shows the
// interfaces of the namespace in which /sys was mounted, which may be another one.
func readCounters(root fs.FS, into map[string]counters) {
	clear(into)
	text, err := fs.ReadFile(root, "proc/thread-self/net/dev")
	if err != nil {
		return
	}
	for name, values := range keyValues(text) {
		const sent = 8 // column of the sent bytes; the received bytes are in column 0
		fields := strings.Fields(values)
		if len(fields) <= sent {
			continue // the line is in the head of the table
		}
		r, err1 := strconv.ParseUint(fields[0], 10, 64)
		t, err2 := strconv.ParseUint(fields[sent], 10, 64)
		if err1 == nil && err2 == nil {
			into[name] = counters{sent: float64(t), received: float64(r)}
		}
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

// rankOfKind is the order of the interfaces: mostLinks then drops the least important ones.
var rankOfKind = map[telemetry.LinkKind]int{telemetry.LinkNetwork: 0, telemetry.LinkVirtual: 1,
	telemetry.LinkLoopback: 2}

// findInterfaces returns the network interfaces that are up. Interfaces with hardware that are up connect the machine
// with other machines. The traffic of all other interfaces passes through them, or stays in the machine. If there are
// none, for example in a container, the virtual interfaces are the connection.
func findInterfaces(root fs.FS, own []net.Interface) (ports []port) {
	hardware := false
	for _, f := range interfaces(root, own) {
		physical := f.exists("device")
		if !f.up || !physical && f.exists("master") { // the master counts the same traffic
			continue
		}
		p := port{unit: 1, sent: path.Join(f.folder, "statistics/tx_bytes"),
			received: path.Join(f.folder, "statistics/rx_bytes")}
		p.link = telemetry.Link{Kind: telemetry.LinkVirtual, Name: f.name, Basis: telemetry.BasisCounter}
		switch {
		case f.loopback:
			p.link.Kind = telemetry.LinkLoopback
		case physical:
			p.link.Kind, hardware = telemetry.LinkNetwork, true
		}
		if physical || f.exists("bonding") { // other drivers, such as veth, report a speed that is not a limit
			p.link.Limit = float64(f.positive("speed")) * 1e6 / 8
		}
		p.bridge = f.exists("bridge")
		ports = append(ports, p)
	}
	for i := range ports {
		if p := &ports[i]; !hardware && p.link.Kind == telemetry.LinkVirtual && !p.bridge {
			p.link.Kind = telemetry.LinkNetwork
		}
	}
	slices.SortStableFunc(ports, func(a, b port) int {
		return cmp.Compare(rankOfKind[a.link.Kind], rankOfKind[b.link.Kind])
	})
	return ports
}

// wordBytes is the unit of the counters of InfiniBand, in bytes. On old devices, these counters have 32 bits and stop
// at their largest value.
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

// findRDMA returns the active RDMA ports. The list also contains ports without counters, because their limits are
// known.
func findRDMA(root fs.FS) (ports []port) {
	folders, _ := fs.Glob(root, "sys/class/infiniband/*/ports/*") // the pattern is valid
	for _, folder := range folders {
		state, _ := readLine(root, path.Join(folder, "state")) // for example "4: ACTIVE"
		if !strings.HasSuffix(state, "ACTIVE") {
			continue
		}
		device := path.Base(path.Dir(path.Dir(folder)))
		p := port{link: telemetry.Link{Kind: telemetry.LinkRDMA, Name: device + "/" + path.Base(folder),
			Limit: rdmaRate(root, folder), Basis: telemetry.BasisCounter}}
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
