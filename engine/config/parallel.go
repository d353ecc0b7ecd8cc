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

// Balance contains the keys of table [balance].
type Balance struct {
	Policy             string // name of a policy of the catalog
	Interval           int    // steps
	Objective          string // "time", "energy" or "cost"
	MaxSlowdownPercent float64
	PowerWatts         []float64 // one value per rank
	IdleWatts          []float64 // one value per rank
	Prices             []float64 // money per hour, one value per rank
	BenchWorthless     bool
	CurveCache         string // "auto" or "off"
	FixedShares        []int  // samples, one value per rank; if set, Policy is not used

	// Options contains the keys that only this policy has. It is nil if the policy has none.
	Options Options

	learning []string // policies of the catalog that read and store step-time curves
}

// Keys implements [Options].
func (b *Balance) Keys() []Key {
	return each(Key.Operational, []Key{
		String(&b.Policy, "policy", "hybrid").OverriddenBy("balance.fixed_shares").
			Doc("The policy that divides the global batch. See the list of policies below."),
		Int(&b.Interval, "interval", 10).Unit("steps").AtLeast(1).OverriddenBy("balance.fixed_shares").
			Doc("Steps between two decisions."),
		Choice(&b.Objective, "objective", "time", "time", "energy", "cost").OverriddenBy("balance.fixed_shares").
			Doc("Quantity that `hybrid` minimises: the time of a step, its energy (with `power_watts`) or its cost (with `prices`)."),
		Float(&b.MaxSlowdownPercent, "max_slowdown_percent", 10).Unit("%").AtMost(1000).Only(
			Is("balance.objective", "energy", "cost")).
			Doc("Maximum slowdown of a step to save energy or cost, relative to the shortest possible step."),
		Floats(&b.PowerWatts, "power_watts").Unit("W").Only(Is("balance.objective", "energy")).
			Doc("Power of each rank while it computes."),
		Floats(&b.IdleWatts, "idle_watts").Unit("W").Only(Is("balance.objective", "energy")).
			Doc("Power of each rank while it waits for other ranks. Empty: 30 % of `power_watts`."),
		Floats(&b.Prices, "prices").Unit("an hour").Only(Is("balance.objective", "cost")).
			Doc("Price of each rank per hour, in any currency. A rank costs the same while it computes and while it waits, so the only way to save cost is to exclude ranks (`bench_worthless`)."),
		Bool(&b.BenchWorthless, "bench_worthless", false).Only(Is("balance.objective", "time", "cost")).OverriddenBy(
			"balance.fixed_shares").
			Doc("Excludes a rank if the step is faster without it. An excluded rank gets no samples. The policy tests the rank again from time to time."),
		Choice(&b.CurveCache, "curve_cache", "auto", "auto", "off").Only(Is("balance.policy", anys(b.learning)...)).OverriddenBy(
			"balance.fixed_shares").
			Doc("`auto`: `hybrid` starts with the step-time curves of earlier runs of this model on the same type of device, and stores its own. The curves are in `hetero-train/curves` in the user's cache folder. `off`: it neither reads nor stores curves."),
		Ints(&b.FixedShares, "fixed_shares").Unit("samples").
			Doc("Share of each rank; the shares must sum to `data.batch_size`. For tests, and to measure the best fixed shares (the oracle). Empty: `policy` chooses the shares."),
	})
}

// NCCL contains the keys of table [nccl]. A zero value leaves NCCL's default unchanged.
type NCCL struct {
	Debug          string
	Algo           string
	Proto          string
	SocketIfname   string
	IBHCA          string
	IBDisable      bool
	P2PDisable     bool
	SHMDisable     bool
	MinNchannels   int
	MaxNchannels   int
	Nthreads       int
	Buffsize       int // bytes
	SocketNthreads int
	NsocksPerTh    int

	// number of thread blocks of a communicator; options of the communicator, not environment variables
	MinCTAs, MaxCTAs                                             int
	DebugSubsys, Net, P2PLevel, NetGDRLevel                      string
	IBGIDIndex                                                   int // -1: NCCL's default
	IBTC, IBSL, IBQPS, IBTimeout, IBRetries, NetPeer             int
	CrossNIC, NetGDRRead, NVLS, PAT, CuMem, RAS, Order, SplitQPs string
	AdaptiveRouting                                              string
	PXNDisable                                                   bool
}

// Variables returns the settings that differ from their defaults, as pairs of an NCCL environment variable and its
// value. It omits options of communicators.
func (n *NCCL) Variables() (list [][2]string) {
	for _, k := range n.Keys() {
		if k.name == "min_ctas" || k.name == "max_ctas" {
			continue
		}
		value := ""
		switch field := k.field.(type) {
		case *string:
			value = *field
		case *int:
			if *field != k.def.(int) {
				value = strconv.Itoa(*field)
			}
		case *bool:
			if *field {
				value = "1"
			}
		}
		if value != "" {
			list = append(list, [2]string{"NCCL_" + strings.ToUpper(k.name), value})
		}
	}
	return list
}

// Keys implements [Options]. It lists all permitted settings of NCCL.
func (n *NCCL) Keys() []Key {
	return each(Key.Operational, []Key{
		Choice(&n.Debug, "debug", "", "", "VERSION", "WARN", "INFO",
			"TRACE").Doc("Verbosity of NCCL's messages on standard error."),
		Choice(&n.Algo, "algo", "", "", "Ring", "Tree", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree").Doc(
			"Algorithm of all collectives. Empty: NCCL's choice."),
		Choice(&n.Proto, "proto", "", "", "LL", "LL128",
			"Simple").Doc("Protocol of all collectives. Empty: NCCL's choice."),
		String(&n.SocketIfname, "socket_ifname",
			"").Doc("Network interfaces to use, by prefix: `eth,ens`, or `^docker` to exclude some."),
		String(&n.IBHCA, "ib_hca", "").Doc("InfiniBand adapters to use: `mlx5_0:1`."),
		Bool(&n.IBDisable, "ib_disable", false).Doc("Uses sockets instead of InfiniBand."),
		Bool(&n.P2PDisable, "p2p_disable", false).Doc("Disables direct copies between GPUs (NVLink, PCIe)."),
		Bool(&n.SHMDisable, "shm_disable", false).Doc("Disables transfers between GPUs through shared memory."),
		Int(&n.MinNchannels, "min_nchannels", 0).AtMost(64).Doc("Minimum number of channels."),
		Int(&n.MaxNchannels, "max_nchannels", 0).AtMost(64).Doc("Maximum number of channels."),
		Int(&n.Nthreads, "nthreads", 0).Unit("threads").AtMost(512).Doc("CUDA threads per block: 64, 128, 256 or 512."),
		Int(&n.Buffsize, "buffsize", 0).Unit("bytes").AtMost(1 << 30).Doc("Size of the buffer between a pair of GPUs."),
		Int(&n.SocketNthreads, "socket_nthreads", 0).Unit("threads").AtMost(16).Doc(
			"CPU threads per socket connection."),
		Int(&n.NsocksPerTh, "nsocks_perthread", 0).AtMost(16).Doc("Sockets per CPU thread of a connection."),
		Int(&n.MinCTAs, "min_ctas", 0).Unit("thread blocks").AtMost(64).Doc("Minimum number of GPU multiprocessors that a communicator uses. 0: NCCL's choice. The program sets it for each communicator, not by an environment variable."),
		Int(&n.MaxCTAs, "max_ctas", 16).Unit("thread blocks").AtMost(64).Doc("Maximum number of GPU multiprocessors that a communicator uses. The others remain free for the backward pass, which runs at the same time. 0: NCCL's choice. The program sets it for each communicator, not by an environment variable."),
		String(&n.DebugSubsys, "debug_subsys", "").Doc("Subsystems of the debug output: `INIT,COLL`."),
		Choice(&n.Net, "net", "", "", "IB",
			"Socket").Doc("Network to use. Networks that NCCL plugins provide are refused."),
		Choice(&n.P2PLevel, "p2p_level", "", "", "LOC", "NVL", "PIX", "PXB", "PHB",
			"SYS").Doc("Maximum distance between GPUs of one machine for direct copies."),
		Choice(&n.NetGDRLevel, "net_gdr_level", "", "", "LOC", "PIX", "PXB", "PHB",
			"SYS").Doc("Maximum distance at which a network adapter reads the GPU's memory directly."),
		Choice(&n.NetGDRRead, "net_gdr_read", "", "", "0",
			"1").Doc("`1`: the adapter also reads GPU memory directly when it sends."),
		Int(&n.IBGIDIndex, "ib_gid_index", -1).AtLeast(-1).AtMost(255).Doc(
			"Index of the global id (GID) of RoCE adapters. -1: NCCL's choice."),
		Int(&n.IBTC, "ib_tc", 0).AtMost(255).Doc("InfiniBand traffic class."),
		Int(&n.IBSL, "ib_sl", 0).AtMost(15).Doc("InfiniBand service level."),
		Int(&n.IBQPS, "ib_qps_per_connection", 0).AtMost(128).Doc("Queue pairs per connection."),
		Choice(&n.SplitQPs, "ib_split_data_on_qps", "", "", "0",
			"1").Doc("`1`: a message is divided among the queue pairs."),
		Int(&n.IBTimeout, "ib_timeout", 0).AtMost(22).Doc("InfiniBand time-out: 4.096 µs * 2^value."),
		Int(&n.IBRetries, "ib_retry_cnt", 0).AtMost(7).Doc("Number of InfiniBand retries."),
		Choice(&n.AdaptiveRouting, "ib_adaptive_routing", "", "", "0", "1").Doc("`1`: adapters may reorder messages."),
		Int(&n.NetPeer, "nchannels_per_net_peer", 0).AtMost(64).Doc(
			"Number of channels to each peer on another machine."),
		Choice(&n.CrossNIC, "cross_nic", "", "", "0", "1",
			"2").Doc("`1`: rings may use different adapters on different machines. `2`: only if this is faster."),
		Bool(&n.PXNDisable, "pxn_disable",
			false).Doc("Disables transfers to a remote GPU through another local GPU and its network adapter."),
		Choice(&n.NVLS, "nvls_enable", "", "", "0", "1",
			"2").Doc("`1`: sums are computed in the NVLink switches. `2`: only if this is faster."),
		Choice(&n.PAT, "pat_enable", "", "", "0", "1",
			"2").Doc("`1`: use the algorithm PAT. `2`: only if it is faster."),
		Choice(&n.CuMem, "cumem_enable", "", "", "0",
			"1").Doc("`1`: allocate memory with CUDA's virtual memory functions."),
		Choice(&n.RAS, "ras_enable", "", "", "0",
			"1").Doc("`1`: start NCCL's service that reports lost ranks. The service opens a port."),
		Choice(&n.Order, "launch_order_implicit", "", "", "0",
			"1").Doc("`1`: kernels of several communicators start in the order of the calls."),
	})
}
