package config

import (
	"strconv"
	"strings"
)

// Parallel is the [parallel] table.
type Parallel struct {
	Backend                  string // auto, nccl, gloo
	Ranks                    int    // 0 = one for each local device
	CPURanks                 int    // of them, the last ones
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
			Doc("What carries the gradients. `nccl`: between GPUs. `gloo`: between CPUs, or CPUs and GPUs. `auto`: `nccl` where every rank has a GPU of its own, else `gloo`."),
		Int(&p.Ranks, "ranks", 0).Unit("ranks").AtMost(1 << 16).Operational().
			Doc("Ranks started on this machine, which divide its cores among them. 0: one for each local device. Not for a process that a launcher has started as one rank of several."),
		Int(&p.CPURanks, "cpu_ranks", 0).Unit("ranks").AtMost(1 << 16).Operational().
			Doc("How many ranks of this machine compute on its CPUs although it has GPUs: the last ones. With `ranks = 0` they are started in addition to a rank for each GPU. Gradients then travel through the hosts' memory (`gloo`)."),
		Float(&p.BucketCapMB, "bucket_cap_mb", 5).Unit("MiB").AtMost(1 << 16).Operational().
			Doc("Gradients are sent in buckets of at most this size while backward still runs, the first and last ones being smaller. 0: the buckets with which the last one is through first, from a few passes and all-reduces that are measured at the start. The result does not depend on it, digit by digit."),
		Bool(&p.Overlap, "overlap", true).Operational().
			Doc("Whether buckets are sent while backward still runs, or all of them after it."),
		Choice(&p.WireDType, "wire_dtype", "auto", "auto", "f32", "bf16", "fp16").Learnt().
			Doc("Number format of gradients between ranks. `auto`: f32, which makes several ranks exactly one. `bf16` halves the bytes: sums are f32 and rounded once, and all ranks get the same bits."),
		String(&p.MasterAddr, "master_addr", "127.0.0.1").Operational().
			Doc("Host name or address of rank 0, where the ranks meet."),
		Int(&p.MasterPort, "master_port", 29500).AtLeast(1).AtMost(65535).Operational().
			Doc("TCP port of rank 0, where the ranks meet."),
		Float(&p.TimeoutSeconds, "timeout_seconds", 30).Unit("s").Above(0).Operational().
			Doc("How long a rank waits for another one within a step before it counts as lost."),
		Float(&p.RendezvousTimeoutSeconds, "rendezvous_timeout_seconds", 300).Unit("s").Above(0).Operational().
			Doc("How long the ranks wait for each other at the start."),
		Choice(&p.SharedMemory, "shared_memory", "auto", "auto", "off").Operational().
			Doc("`auto`: ranks of one machine exchange gradients through shared memory. `off`: through the network like all others, for comparison."),
		String(&p.TokenFile, "token_file", "").Operational().
			Doc("File with the secret that ranks of several machines show each other (readable by its owner only). Empty: the environment variable `HETERO_TOKEN`."),
		Bool(&p.Insecure, "insecure", false).Operational().
			Doc("Allows ranks of several machines to meet without a secret. Said at every start."),
	}
}

// Balance is the [balance] table.
type Balance struct {
	Policy             string // a policy of the catalog
	Interval           int    // steps
	Objective          string // time, energy, cost
	MaxSlowdownPercent float64
	PowerWatts         []float64 // one for each rank
	IdleWatts          []float64 // one for each rank
	Prices             []float64 // money an hour, one for each rank
	BenchWorthless     bool
	CurveCache         string // auto, off
	FixedShares        []int  // samples, one for each rank; overrides Policy

	// Options are the keys that only this policy has; nil if it has none.
	Options Options
}

// Keys lists the table's keys.
func (b *Balance) Keys() []Key {
	return each(Key.Operational, []Key{
		String(&b.Policy, "policy", "hybrid").
			Doc("Which policy divides the global batch, see the list of policies below."),
		Int(&b.Interval, "interval", 10).Unit("steps").AtLeast(1).
			Doc("Steps between two decisions."),
		Choice(&b.Objective, "objective", "time", "time", "energy", "cost").
			Doc("What `hybrid` minimises: the step's time, its energy (with `power_watts`) or its cost (with `prices`)."),
		Float(&b.MaxSlowdownPercent, "max_slowdown_percent", 10).Unit("%").AtMost(1000).
			Doc("By how much a step may be longer than the shortest possible one for the sake of energy or cost."),
		Floats(&b.PowerWatts, "power_watts").Unit("W").
			Doc("What each rank draws while it computes. For `objective = \"energy\"`."),
		Floats(&b.IdleWatts, "idle_watts").Unit("W").
			Doc("What each rank draws while it waits for others. Empty: 30 % of `power_watts`."),
		Floats(&b.Prices, "prices").Unit("an hour").
			Doc("What each rank costs, in any currency, whether it computes or waits. For `objective = \"cost\"`: there is something to save only with `bench_worthless`."),
		Bool(&b.BenchWorthless, "bench_worthless", false).
			Doc("Whether a rank that makes the step slower than it is without it gets no samples. It is tried again now and then."),
		Choice(&b.CurveCache, "curve_cache", "auto", "auto", "off").
			Doc("`auto`: `hybrid` starts with what earlier runs on the same type of device learned of this model, from `hetero-train/curves` in the user's cache folder, and leaves there what it learns. `off`: it learns anew, and leaves nothing."),
		Ints(&b.FixedShares, "fixed_shares").Unit("samples").
			Doc("One share for each rank, summing to `data.batch_size`; overrides `policy`. For tests and oracles. Empty: the policy decides."),
	})
}

// NCCL is the [nccl] table. A field at its zero value is not passed on.
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

	MinCTAs, MaxCTAs                                             int // of each communicator: no variables
	DebugSubsys, Net, P2PLevel, NetGDRLevel                      string
	IBGIDIndex                                                   int // -1 = not passed on
	IBTC, IBSL, IBQPS, IBTimeout, IBRetries, NetPeer             int
	CrossNIC, NetGDRRead, NVLS, PAT, CuMem, RAS, Order, SplitQPs string
	AdaptiveRouting                                              string
	PXNDisable                                                   bool
}

// Variables are the settings that are not at their defaults, as NCCL's environment has them: name and value. Settings of communicators are
// not among them.
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

// Keys lists the table's keys: the allow-list.
func (n *NCCL) Keys() []Key {
	return each(Key.Operational, []Key{
		Choice(&n.Debug, "debug", "", "", "VERSION", "WARN", "INFO", "TRACE").Doc("How much NCCL says (on standard error)."),
		Choice(&n.Algo, "algo", "", "", "Ring", "Tree", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree").Doc("Algorithm that is forced."),
		Choice(&n.Proto, "proto", "", "", "LL", "LL128", "Simple").Doc("Protocol that is forced."),
		String(&n.SocketIfname, "socket_ifname", "").Doc("Network interfaces to use, by prefix, as `eth,ens` or `^docker`."),
		String(&n.IBHCA, "ib_hca", "").Doc("InfiniBand adapters to use, as `mlx5_0:1`."),
		Bool(&n.IBDisable, "ib_disable", false).Doc("Whether InfiniBand is left alone and sockets are used."),
		Bool(&n.P2PDisable, "p2p_disable", false).Doc("Whether direct copies between GPUs (NVLink, PCIe) are left alone."),
		Bool(&n.SHMDisable, "shm_disable", false).Doc("Whether shared memory between GPUs is left alone."),
		Int(&n.MinNchannels, "min_nchannels", 0).AtMost(64).Doc("Least number of channels."),
		Int(&n.MaxNchannels, "max_nchannels", 0).AtMost(64).Doc("Largest number of channels."),
		Int(&n.Nthreads, "nthreads", 0).Unit("threads").AtMost(512).Doc("CUDA threads of a block: 64, 128, 256 or 512."),
		Int(&n.Buffsize, "buffsize", 0).Unit("bytes").AtMost(1 << 30).Doc("Buffer between a pair of GPUs."),
		Int(&n.SocketNthreads, "socket_nthreads", 0).Unit("threads").AtMost(16).Doc("CPU threads of a socket connection."),
		Int(&n.NsocksPerTh, "nsocks_perthread", 0).AtMost(16).Doc("Sockets of such a thread."),
		Int(&n.MinCTAs, "min_ctas", 0).Unit("thread blocks").AtMost(64).Doc("Least number of multiprocessors that a communicator takes of a GPU. 0: NCCL's choice. Not a variable: set for each communicator."),
		Int(&n.MaxCTAs, "max_ctas", 16).Unit("thread blocks").AtMost(64).Doc("Largest number of them, so that sums of gradients leave the backward pass beside them enough. 0: NCCL's choice. Not a variable either."),
		String(&n.DebugSubsys, "debug_subsys", "").Doc("What it says that of, as `INIT,COLL`."),
		Choice(&n.Net, "net", "", "", "IB", "Socket").Doc("Network that is forced. Networks of plugins are refused."),
		Choice(&n.P2PLevel, "p2p_level", "", "", "LOC", "NVL", "PIX", "PXB", "PHB", "SYS").Doc("Up to which distance GPUs of one machine copy directly."),
		Choice(&n.NetGDRLevel, "net_gdr_level", "", "", "LOC", "PIX", "PXB", "PHB", "SYS").Doc("Up to which distance a network adapter reads the GPU's memory directly."),
		Choice(&n.NetGDRRead, "net_gdr_read", "", "", "0", "1").Doc("Whether it does so when it sends."),
		Int(&n.IBGIDIndex, "ib_gid_index", -1).AtLeast(-1).AtMost(255).Doc("Global id of RoCE adapters. -1: not passed on."),
		Int(&n.IBTC, "ib_tc", 0).AtMost(255).Doc("InfiniBand traffic class."),
		Int(&n.IBSL, "ib_sl", 0).AtMost(15).Doc("InfiniBand service level."),
		Int(&n.IBQPS, "ib_qps_per_connection", 0).AtMost(128).Doc("Queue pairs of a connection."),
		Choice(&n.SplitQPs, "ib_split_data_on_qps", "", "", "0", "1").Doc("Whether a message is divided among them."),
		Int(&n.IBTimeout, "ib_timeout", 0).AtMost(22).Doc("InfiniBand time-out: 4.096 µs times 2 to this power."),
		Int(&n.IBRetries, "ib_retry_cnt", 0).AtMost(7).Doc("InfiniBand retries."),
		Choice(&n.AdaptiveRouting, "ib_adaptive_routing", "", "", "0", "1").Doc("Whether adapters may reorder."),
		Int(&n.NetPeer, "nchannels_per_net_peer", 0).AtMost(64).Doc("Channels to each peer in the network."),
		Choice(&n.CrossNIC, "cross_nic", "", "", "0", "1", "2").Doc("Whether rings may use another adapter on each machine. `2`: where it pays."),
		Bool(&n.PXNDisable, "pxn_disable", false).Doc("Whether data never goes over another GPU to its adapter."),
		Choice(&n.NVLS, "nvls_enable", "", "", "0", "1", "2").Doc("Sums within NVLink switches. `2`: where it pays."),
		Choice(&n.PAT, "pat_enable", "", "", "0", "1", "2").Doc("The algorithm PAT. `2`: where it pays."),
		Choice(&n.CuMem, "cumem_enable", "", "", "0", "1").Doc("Memory by CUDA's virtual memory functions."),
		Choice(&n.RAS, "ras_enable", "", "", "0", "1").Doc("NCCL's own service that tells of lost ranks, which opens a port."),
		Choice(&n.Order, "launch_order_implicit", "", "", "0", "1").Doc("Whether kernels of several communicators start in the order of the calls."),
	})
}
