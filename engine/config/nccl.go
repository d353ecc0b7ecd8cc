package config

import (
	"strconv"
	"strings"
)

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
