package plan

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"strconv"
	"text/tabwriter"

	"github.com/hetero-train/hetero-train/engine/config"
)

// listener is a port on which a process of the run listens.
type listener struct {
	For       string `json:"for"`
	Machines  string `json:"machines"`   // machines on which the process runs
	Address   string `json:"address"`    // host and ports
	Open      string `json:"open"`       // time during which the port is open
	OpenTo    string `json:"open_to"`    // machines and users that may use it
	Protected string `json:"protection"` // protection against all others
}

const (
	systemPort = "any (chosen by the system)"
	noSecret   = "NONE (insecure)"
)

// listeners lists the ports of a run. If all ranks are on one machine, hetero-train itself opens only ports of the
// loopback interface between them.
func listeners(c *config.Config) []listener {
	p := c.Parallel
	secret := "token, TLS 1.3"
	if p.CertFile != "" {
		secret = "token, TLS 1.3, certificates"
	}
	if p.Insecure {
		secret = "token if set, TLS 1.3"
	}
	peers := "token and key of the run, not encrypted"
	if p.Encrypt {
		peers = "token and key of the run, TLS 1.3"
	}
	list := []listener{
		{"rank discovery and control", "rank 0's", net.JoinHostPort(p.MasterAddr, strconv.Itoa(p.MasterPort)),
			"the whole run", "ranks", secret},
		{"gradients, gloo", "each", cmp.Or(p.Ports, systemPort), "while ranks connect; their connections keep the ports",
			"ranks", peers},
	}
	if p.Backend != "gloo" && !p.Encrypt {
		list = append(list, listener{"gradients, NCCL (GPUs only)", "each", systemPort, "while ranks connect", "anyone",
			"NONE: use a private network"})
	}
	if c.Metrics.Address != "" {
		address, open := c.Metrics.Address, "rank 0's"
		if c.Metrics.Ranks == "all" {
			open = "each; the port plus the number of the rank on its machine"
		}
		list = append(list, listener{"metrics for Prometheus", open, address, "the whole run", "scrapers",
			guarded(address, c.Metrics.Insecure, c.Metrics.CertFile != "")})
	}
	if c.Dashboard.Enabled {
		address := net.JoinHostPort(c.Dashboard.Address, strconv.Itoa(c.Dashboard.Port))
		list = append(list, listener{"dashboard", "rank 0's", address, "the whole run", "browsers",
			guarded(address, c.Dashboard.Insecure, c.Dashboard.CertFile != "")})
	}
	return list
}

// guarded describes the protection of a web server.
func guarded(address string, insecure, encrypted bool) string {
	host, _, _ := net.SplitHostPort(address) // no error: the configuration is valid
	ip := net.ParseIP(host)
	switch {
	case host == "localhost" || ip != nil && ip.IsLoopback():
		return "loopback only"
	case insecure:
		return noSecret
	case encrypted:
		return "token, TLS"
	}
	return "token, plain HTTP"
}

// writePorts writes the table of ports.
func writePorts(w io.Writer, list []listener) error {
	fmt.Fprintln(w, "\nports of a run on several machines (on one machine, ranks use loopback and shared memory):")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "for\tmachines\ttcp port\topen\topen to\tprotection")
	for _, l := range list {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", l.For, l.Machines, l.Address, l.Open, l.OpenTo, l.Protected)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprint(w, `Under torchrun and Open MPI, rank 0 uses one of eight ports between 10000 and 19999; under Slurm, port 20000 plus the last
four digits of the job id. --set parallel.master_port=PORT selects one. If parallel.master_addr is a host name, rank 0 listens on all addresses.
`)
	return err
}
