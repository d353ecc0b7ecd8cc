package discovery

import (
	"fmt"
	"hash/fnv"
	"net"
	"strconv"
)

// agentStoreVariable is the environment variable that states whether torchrun's own store listens on MASTER_PORT.
const agentStoreVariable = "TORCHELASTIC_USE_AGENT_STORE"

// The derived ports are below the ephemeral ports of the systems (from 32768). They also avoid the usual values of
// MASTER_PORT (29500 and above), which another torchrun may use.
const (
	firstDerived = 10000
	derivedRange = 10000
	derivedPorts = 8    // number of ports; rank 0 listens on the first free one
	derivedApart = 1259 // distance between the ports, so that a program with adjacent ports blocks at most one of them
)

// job identifies one start of the ranks among other starts on the same machines. Its text determines the derived ports.
type job string

// key returns a number that is the same on all ranks of a start and differs between starts.
func (j job) key() uint64 {
	h := fnv.New64a()
	h.Write([]byte(j)) // never fails
	return h.Sum64() | 1
}

// ports returns the ports on which rank 0 may listen, in the order in which all ranks try them.
func (j job) ports() []int {
	ports := make([]int, derivedPorts)
	for i := range ports {
		ports[i] = firstDerived + int((j.key()>>16+uint64(i)*derivedApart)%derivedRange)
	}
	return ports
}

// torchrunJob returns the identity of a start by torchrun. The result ok is false if rank 0 may use MASTER_PORT.
func (in *input) torchrunJob() (name job, ok bool) {
	held, err := strconv.ParseBool(in.env[agentStoreVariable])
	if err != nil || !held {
		return "", false
	}
	return job(fmt.Sprintf("torchrun %s, store on port %s", in.env["TORCHELASTIC_RUN_ID"], in.env["MASTER_PORT"])), true
}

// Addresses returns the possible addresses of rank 0 as host:port, in the order in which rank 0 tries to listen.
func (p Assignment) Addresses() []string {
	if len(p.Ports) == 0 {
		return []string{p.Master()}
	}
	addresses := make([]string, len(p.Ports))
	for i, port := range p.Ports {
		addresses[i] = net.JoinHostPort(p.MasterAddr, strconv.Itoa(port))
	}
	return addresses
}
