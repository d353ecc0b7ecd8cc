package config

import (
	"strconv"
	"strings"
)

// Parallel is the [parallel] table.
type Parallel struct {
	Backend                  string // auto, nccl, gloo
	Ranks                    int    // 0 = one per local device
	CPURanks                 int    // number of CPU ranks among Ranks: the last ones
	BucketCapMB              float64
	Overlap                  bool
	WireDType                string // auto, f32, bf16, fp16
	MasterAddr               string
	MasterPort               int
	TimeoutSeconds           float64
	RendezvousTimeoutSeconds float64
	SharedMemory             string // auto, off
	TokenFile                string
	Insecure                 bool
}

// Keys lists the table's keys.
func (p *Parallel) Keys() []Key {
	return []Key{
		Choice(&p.Backend, "backend", "auto", "auto", "nccl", "gloo").Operational().
			Doc("Transport of gradients. `nccl`: between GPUs. `gloo`: between CPUs, or CPUs and GPUs. `auto`: `nccl` if every rank has its own GPU, else `gloo`."),
		Int(&p.Ranks, "ranks", 0).Unit("ranks").AtMost(1 << 16).Operational().
			Doc("Ranks started on this machine; they divide its cores. 0: one for each local device. Not for a process that a launcher has started as one rank of several."),
		Int(&p.CPURanks, "cpu_ranks", 0).Unit("ranks").AtMost(1 << 16).Operational().
			Doc("Number of this machine's ranks that compute on its CPUs although it has GPUs. They are the ranks with the highest numbers. With `ranks = 0` they start in addition to one rank per GPU. Gradients then travel through host memory (`gloo`)."),
		Float(&p.BucketCapMB, "bucket_cap_mb", 5).Unit("MiB").AtMost(1 << 16).Operational().
			Doc("Maximum size of a gradient bucket; the first and last ones are smaller. Buckets are sent during the backward pass. 0: the sizes with which the last bucket arrives first, from a few passes and all-reduces that are measured at the start. The result does not depend on it, bit for bit."),
		Bool(&p.Overlap, "overlap", true).Operational().
			Doc("Whether buckets are sent during the backward pass, or all of them after it."),
		Choice(&p.WireDType, "wire_dtype", "auto", "auto", "f32", "bf16", "fp16").Learnt().
			Doc("Number format of gradients between ranks. `auto`: f32, with which several ranks equal one rank. `bf16` halves the bytes: sums are f32 and rounded once, and all ranks get the same bits."),
		String(&p.MasterAddr, "master_addr", "127.0.0.1").Operational().
			Doc("Host name or address of rank 0, for rank discovery."),
		Int(&p.MasterPort, "master_port", 29500).AtLeast(1).AtMost(65535).Operational().
			Doc("TCP port of rank 0, for rank discovery."),
		Float(&p.TimeoutSeconds, "timeout_seconds", 30).Unit("s").Above(0).Operational().
			Doc("Time that a rank waits for another one within a step before it counts the other as lost."),
		Float(&p.RendezvousTimeoutSeconds, "rendezvous_timeout_seconds", 300).Unit("s").Above(0).Operational().
			Doc("Time that the ranks wait for each other at the start."),
		Choice(&p.SharedMemory, "shared_memory", "auto", "auto", "off").Operational().
			Doc("`auto`: ranks of one machine exchange gradients through shared memory. `off`: through the network, for comparison."),
		String(&p.TokenFile, "token_file", "").Operational().
			Doc("File with the common secret of the ranks of several machines, readable by its owner only. Empty: the environment variable `HETERO_TOKEN`."),
		Bool(&p.Insecure, "insecure", false).Operational().
			Doc("Allows ranks of several machines to meet without a secret. Every start logs it."),
	}
}

// Balance is the [balance] table.
type Balance struct {
	Policy             string // a policy of the catalog
	Interval           int    // steps
	Objective          string // time, energy, cost
	MaxSlowdownPercent float64
	PowerWatts         []float64 // one value per rank
	IdleWatts          []float64 // one value per rank
	Prices             []float64 // money per hour, one value per rank
	BenchWorthless     bool
	CurveCache         string // auto, off
	FixedShares        []int  // samples, one value per rank; overrides Policy

	// Options contains the keys that only this policy has; nil if it has none.
	Options Options
}

// Keys lists the table's keys.
func (b *Balance) Keys() []Key {
	return each(Key.Operational, []Key{
		String(&b.Policy, "policy", "hybrid").
			Doc("The policy that divides the global batch, see the list of policies below."),
		Int(&b.Interval, "interval", 10).Unit("steps").AtLeast(1).OverriddenBy("balance.fixed_shares").
			Doc("Steps between two decisions."),
		Choice(&b.Objective, "objective", "time", "time", "energy", "cost").OverriddenBy("balance.fixed_shares").
			Doc("Quantity that `hybrid` minimises: the step's time, its energy (with `power_watts`) or its cost (with `prices`)."),
		Float(&b.MaxSlowdownPercent, "max_slowdown_percent", 10).Unit("%").AtMost(1000).Only(Is("balance.objective", "energy", "cost")).
			Doc("Maximum slowdown of a step, relative to the shortest possible one, to save energy or cost."),
		Floats(&b.PowerWatts, "power_watts").Unit("W").Only(Is("balance.objective", "energy")).
			Doc("Power of each rank while it computes."),
		Floats(&b.IdleWatts, "idle_watts").Unit("W").Only(Is("balance.objective", "energy")).
			Doc("Power of each rank while it waits for others. Empty: 30 % of `power_watts`."),
		Floats(&b.Prices, "prices").Unit("an hour").Only(Is("balance.objective", "cost")).
			Doc("Price of each rank, in any currency, while it computes or waits. Waiting costs as much as computing, so a run saves only by leaving ranks out (`bench_worthless`)."),
		Bool(&b.BenchWorthless, "bench_worthless", false).Only(Is("balance.objective", "time", "cost")).OverriddenBy("balance.fixed_shares").
			Doc("Whether a rank gets no samples if the step is faster without it. The policy tries the rank again now and then."),
		Choice(&b.CurveCache, "curve_cache", "auto", "auto", "off").Only(Is("balance.policy", "hybrid")).OverriddenBy("balance.fixed_shares").
			Doc("`auto`: `hybrid` starts with the curves that earlier runs of this model fitted on the same type of device, from `hetero-train/curves` in the user's cache folder, and stores its curves there. `off`: it neither reads nor stores curves."),
		Ints(&b.FixedShares, "fixed_shares").Unit("samples").
			Doc("One share for each rank; the shares sum to `data.batch_size`. Overrides `policy`. For tests, and to measure the best fixed shares (the oracle). Empty: the policy decides."),
	})
}

// NCCL is the [nccl] table. Fields with zero values are not passed on.
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

	MinCTAs, MaxCTAs                                             int // of each communicator, not NCCL variables
	DebugSubsys, Net, P2PLevel, NetGDRLevel                      string
	IBGIDIndex                                                   int // -1 = not passed on
	IBTC, IBSL, IBQPS, IBTimeout, IBRetries, NetPeer             int
	CrossNIC, NetGDRRead, NVLS, PAT, CuMem, RAS, Order, SplitQPs string
	AdaptiveRouting                                              string
	PXNDisable                                                   bool
}

// Variables returns the settings that are not at their defaults, as names and values of NCCL's environment variables.
// It excludes settings of communicators.
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

// Keys lists the table's keys, which are the permitted settings.
func (n *NCCL) Keys() []Key {
	return each(Key.Operational, []Key{
		Choice(&n.Debug, "debug", "", "", "VERSION", "WARN", "INFO", "TRACE").Doc("Verbosity of NCCL (on standard error)."),
		Choice(&n.Algo, "algo", "", "", "Ring", "Tree", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree").Doc("Forces an algorithm."),
		Choice(&n.Proto, "proto", "", "", "LL", "LL128", "Simple").Doc("Forces a protocol."),
		String(&n.SocketIfname, "socket_ifname", "").Doc("Network interfaces to use, by prefix, as `eth,ens` or `^docker`."),
		String(&n.IBHCA, "ib_hca", "").Doc("InfiniBand adapters to use, as `mlx5_0:1`."),
		Bool(&n.IBDisable, "ib_disable", false).Doc("Whether NCCL uses sockets instead of InfiniBand."),
		Bool(&n.P2PDisable, "p2p_disable", false).Doc("Disables direct copies between GPUs (NVLink, PCIe)."),
		Bool(&n.SHMDisable, "shm_disable", false).Doc("Disables shared memory between GPUs."),
		Int(&n.MinNchannels, "min_nchannels", 0).AtMost(64).Doc("Minimum number of channels."),
		Int(&n.MaxNchannels, "max_nchannels", 0).AtMost(64).Doc("Maximum number of channels."),
		Int(&n.Nthreads, "nthreads", 0).Unit("threads").AtMost(512).Doc("CUDA threads of a block: 64, 128, 256 or 512."),
		Int(&n.Buffsize, "buffsize", 0).Unit("bytes").AtMost(1 << 30).Doc("Buffer between a pair of GPUs."),
		Int(&n.SocketNthreads, "socket_nthreads", 0).Unit("threads").AtMost(16).Doc("CPU threads of a socket connection."),
		Int(&n.NsocksPerTh, "nsocks_perthread", 0).AtMost(16).Doc("Sockets per CPU thread of a connection."),
		Int(&n.MinCTAs, "min_ctas", 0).Unit("thread blocks").AtMost(64).Doc("Minimum number of multiprocessors of a GPU that a communicator uses. 0: NCCL's choice. Passed to NCCL for each communicator, not as an environment variable."),
		Int(&n.MaxCTAs, "max_ctas", 16).Unit("thread blocks").AtMost(64).Doc("Maximum number of multiprocessors of a GPU that a communicator uses, so that enough remain for the concurrent backward pass. 0: NCCL's choice. Passed to NCCL for each communicator, not as an environment variable."),
		String(&n.DebugSubsys, "debug_subsys", "").Doc("Subsystems of the debug output, as `INIT,COLL`."),
		Choice(&n.Net, "net", "", "", "IB", "Socket").Doc("Forces a network. Networks of plugins are refused."),
		Choice(&n.P2PLevel, "p2p_level", "", "", "LOC", "NVL", "PIX", "PXB", "PHB", "SYS").Doc("Maximum distance between GPUs of one machine for direct copies."),
		Choice(&n.NetGDRLevel, "net_gdr_level", "", "", "LOC", "PIX", "PXB", "PHB", "SYS").Doc("Maximum distance at which a network adapter reads the GPU's memory directly."),
		Choice(&n.NetGDRRead, "net_gdr_read", "", "", "0", "1").Doc("Whether the adapter reads GPU memory directly when it sends, too."),
		Int(&n.IBGIDIndex, "ib_gid_index", -1).AtLeast(-1).AtMost(255).Doc("Global id of RoCE adapters. -1: not passed on."),
		Int(&n.IBTC, "ib_tc", 0).AtMost(255).Doc("InfiniBand traffic class."),
		Int(&n.IBSL, "ib_sl", 0).AtMost(15).Doc("InfiniBand service level."),
		Int(&n.IBQPS, "ib_qps_per_connection", 0).AtMost(128).Doc("Queue pairs of a connection."),
		Choice(&n.SplitQPs, "ib_split_data_on_qps", "", "", "0", "1").Doc("Whether a message is divided among the queue pairs."),
		Int(&n.IBTimeout, "ib_timeout", 0).AtMost(22).Doc("InfiniBand time-out: 4.096 µs times 2 to this power."),
		Int(&n.IBRetries, "ib_retry_cnt", 0).AtMost(7).Doc("InfiniBand retries."),
		Choice(&n.AdaptiveRouting, "ib_adaptive_routing", "", "", "0", "1").Doc("Whether adapters may reorder messages."),
		Int(&n.NetPeer, "nchannels_per_net_peer", 0).AtMost(64).Doc("Channels to each peer in the network."),
		Choice(&n.CrossNIC, "cross_nic", "", "", "0", "1", "2").Doc("Whether rings may use another adapter on each machine. `2`: if it is faster."),
		Bool(&n.PXNDisable, "pxn_disable", false).Doc("Forbids sending data through another GPU to that GPU's network adapter."),
		Choice(&n.NVLS, "nvls_enable", "", "", "0", "1", "2").Doc("Sums within NVLink switches. `2`: if it is faster."),
		Choice(&n.PAT, "pat_enable", "", "", "0", "1", "2").Doc("The algorithm PAT. `2`: if it is faster."),
		Choice(&n.CuMem, "cumem_enable", "", "", "0", "1").Doc("Memory from CUDA's virtual memory functions."),
		Choice(&n.RAS, "ras_enable", "", "", "0", "1").Doc("NCCL's own service that reports lost ranks; it opens a port."),
		Choice(&n.Order, "launch_order_implicit", "", "", "0", "1").Doc("Whether kernels of several communicators start in the order of the calls."),
	})
}
