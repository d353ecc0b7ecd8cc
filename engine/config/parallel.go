package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Parallel contains the keys of table [parallel].
type Parallel struct {
	Backend                  string // "auto", "nccl" or "gloo"
	Ranks                    int    // 0: one rank for each local device
	CPURanks                 int    // number of CPU ranks, which have the highest rank numbers
	BucketCapMB              float64
	Overlap                  bool
	WireDType                string // "auto", "f32" or "bf16"
	MasterAddr               string
	MasterPort               int
	TimeoutSeconds           float64
	RendezvousTimeoutSeconds float64
	SharedMemory             string // "auto" or "off"
	TokenFile                string
	Insecure                 bool
	CAFile                   string
	CertFile                 string
	KeyFile                  string
	Encrypt                  bool
	Ports                    string // "" or a range; see PortRange
}

// Keys implements [Options].
func (p *Parallel) Keys() []Key {
	return []Key{
		Choice(&p.Backend, "backend", "auto", "auto", "nccl", "gloo").Operational().
			Doc("Transport of gradients. `nccl`: GPUs only. `gloo`: CPUs, or CPUs and GPUs. `auto`: `nccl` if every rank has its own GPU, else `gloo`."),
		Int(&p.Ranks, "ranks", 0).Unit("ranks").AtMost(1 << 16).Operational().
			Doc("Number of ranks to start on this machine; they divide its cores. 0: one rank per local device. This key is an error if a launcher (such as torchrun, mpirun or srun) starts each rank itself."),
		Int(&p.CPURanks, "cpu_ranks", 0).Unit("ranks").AtMost(1 << 16).Operational().
			Doc("Number of ranks of this machine that compute on the CPU although the machine has GPUs. They have the highest rank numbers. With `ranks = 0` they start in addition to one rank per GPU. Gradients then travel through host memory (`gloo`)."),
		Float(&p.BucketCapMB, "bucket_cap_mb", 5).Unit("MiB").AtMost(1 << 16).Operational().
			Doc("Maximum size of a gradient bucket. The first and the last bucket are smaller. Ranks send buckets during the backward pass. 0: at the start, the program times steps with several sizes, among them sizes fitted to the times of single gradients, and uses the fastest (docs/training.md). Results are bit-equal for all values."),
		Bool(&p.Overlap, "overlap", true).Operational().
			Doc("true: ranks send each bucket during the backward pass. false: they send all buckets after the pass."),
		Choice(&p.WireDType, "wire_dtype", "auto", "auto", "f32", "bf16").Learnt().
			Doc("Number format of gradients between ranks. `auto`: f32, so a run with several ranks gives the same result as a run with one rank, up to rounding. `bf16`: ranks send half the bytes; sums are computed in f32 and rounded once, and all ranks get the same bits."),
		String(&p.MasterAddr, "master_addr", "127.0.0.1").Host("parallel.master_port").Operational().
			Doc("Host name or address of rank 0, for rank discovery."),
		Int(&p.MasterPort, "master_port", 29500).AtLeast(1).AtMost(65535).Operational().
			Doc("TCP port of rank 0, for rank discovery."),
		Float(&p.TimeoutSeconds, "timeout_seconds", 30).Unit("s").Above(0).Operational().
			Doc("Time after which a rank counts as lost if it is silent, because its process is frozen or its network is down, or if it does not reach an operation for which another rank waits. A rank whose process ends is lost immediately."),
		Float(&p.RendezvousTimeoutSeconds, "rendezvous_timeout_seconds", 300).Unit("s").Above(0).Operational().
			Doc("Time that ranks wait for each other at the start."),
		Choice(&p.SharedMemory, "shared_memory", "auto", "auto", "off").Operational().
			Doc("`auto`: ranks of one machine exchange gradients through shared memory. `off`: through the network, for comparison."),
		String(&p.TokenFile, "token_file", "").Path().Operational().
			Doc("File with the secret that all ranks of the run share. Only the owner may have access to the file. If the owner is root, the group may read the file, too. Empty: the file that `HETERO_TOKEN_FILE` names, or else the value of `HETERO_TOKEN`."),
		Bool(&p.Insecure, "insecure", false).Operational().
			Doc("Accepts ranks of other machines without a secret. Every start logs a warning."),
		String(&p.CAFile, "ca_file", "").Path().Operational().
			Doc("Certificate of the authority that signed the certificates of all machines (PEM). With `cert_file` and `key_file`, the ranks verify each other's certificates in addition to the secret; `hetero-train certs` makes all three files. Empty: the secret alone identifies a rank."),
		String(&p.CertFile, "cert_file", "").Path().Operational().
			Doc("Certificate of this machine (PEM). That of rank 0's machine names `master_addr`."),
		String(&p.KeyFile, "key_file", "").Path().Operational().
			Doc("Private key of `cert_file` (PEM). The permissions must be those of `token_file`: only the owner, or, for a file of root, also its group."),
		Bool(&p.Encrypt, "encrypt", false).Operational().
			Doc("Encrypts gradients between machines by TLS 1.3; connections between ranks for discovery and control are always encrypted. Gradients then travel by `gloo`, because NCCL encrypts nothing. docs/security.md has the cost."),
		String(&p.Ports, "ports", "").Operational().
			Doc("TCP ports on which ranks accept connections of other machines for gradients, for example `29600-29663`, for firewalls; at least one for each rank of a machine. Empty: ports that the system chooses. `master_port` is the port of rank 0 for rank discovery."),
	}
}

// PortRange parses a range of TCP ports such as "29600-29663", or a single port. An empty text is the range 0 to 0.
func PortRange(text string) (first, last int, err error) {
	if text == "" {
		return 0, 0, nil
	}
	low, high, isRange := strings.Cut(text, "-")
	if !isRange {
		high = low
	}
	if first, err = strconv.Atoi(low); err == nil {
		last, err = strconv.Atoi(high)
	}
	if err != nil || first < 1 || last > 65535 || first > last {
		return 0, 0, fmt.Errorf("got %q, want a port or a range of ports from 1 to 65535, such as \"29600-29663\"",
			text)
	}
	return first, last, nil
}
