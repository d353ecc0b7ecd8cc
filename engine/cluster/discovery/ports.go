package discovery

import (
	"fmt"
	"hash/fnv"
	"net"
	"strconv"
)

// agentStoreVariable says, where it is true, that torchrun's own store listens on MASTER_PORT.
const agentStoreVariable = "TORCHELASTIC_USE_AGENT_STORE"

// Derived ports are below those that systems give out by themselves (from 32768 on) and away from the usual values of MASTER_PORT (29500 and
// the numbers behind it), which another torchrun may want.
const (
	firstDerived = 10000
	derivedRange = 10000
	derivedPorts = 8    // rank 0 listens on the first of them that is free
	derivedApart = 1259 // prime: a program that takes neighbouring ports takes one of them at most
)

// job names the start of the ranks among other starts on the same machines. Its ports are derived from the text.
type job string

// key is equal on all ranks of a start and differs between starts.
func (j job) key() uint64 {
	h := fnv.New64a()
	h.Write([]byte(j)) // never fails
	return h.Sum64() | 1
}

// ports are those on which rank 0 may listen, in the order in which all ranks try them.
func (j job) ports() []int {
	ports := make([]int, derivedPorts)
	for i := range ports {
		ports[i] = firstDerived + int((j.key()>>16+uint64(i)*derivedApart)%derivedRange)
	}
	return ports
}

// torchrunJob names a start by torchrun; ok is false where MASTER_PORT is free for rank 0.
func (in *input) torchrunJob() (name job, ok bool) {
	held, err := strconv.ParseBool(in.env[agentStoreVariable])
	if err != nil || !held {
		return "", false
	}
	return job(fmt.Sprintf("torchrun %s, store on port %s", in.env["TORCHELASTIC_RUN_ID"], in.env["MASTER_PORT"])), true
}

// Addresses are those at which rank 0 may be, as host:port, in the order in which it tries to listen.
func (p Place) Addresses() []string {
	if len(p.Ports) == 0 {
		return []string{p.Master()}
	}
	addresses := make([]string, len(p.Ports))
	for i, port := range p.Ports {
		addresses[i] = net.JoinHostPort(p.MasterAddr, strconv.Itoa(port))
	}
	return addresses
}
