package parts

import (
	"testing"

	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/nccl"
)

// The keys of [nccl] set environment variables of NCCL. Package nccl must allow each of these variables.
func TestNCCLKeysAreKnown(t *testing.T) {
	for _, setting := range []string{`debug="INFO"`, `algo="Ring"`, `algo="Tree"`, `algo="CollnetDirect"`,
		`algo="CollnetChain"`, `algo="NVLS"`,
		`algo="NVLSTree"`, `proto="LL"`, `proto="LL128"`, `proto="Simple"`, `socket_ifname="eth0,^lo"`,
		`ib_hca="mlx5_0:1"`, `ib_disable=true`, `p2p_disable=true`,
		`shm_disable=true`, `min_nchannels=2`, `max_nchannels=64`, `nthreads=512`, `buffsize=4194304`,
		`socket_nthreads=4`, `nsocks_perthread=2`, `debug_subsys="INIT,COLL"`,
		`net="Socket"`, `p2p_level="NVL"`, `net_gdr_level="PHB"`, `net_gdr_read="0"`, `ib_gid_index=0`, `ib_tc=106`,
		`ib_sl=3`, `ib_qps_per_connection=4`, `ib_split_data_on_qps="1"`,
		`ib_timeout=22`, `ib_retry_cnt=7`, `ib_adaptive_routing="1"`, `nchannels_per_net_peer=4`, `cross_nic="0"`,
		`pxn_disable=true`, `nvls_enable="0"`, `pat_enable="2"`, `cumem_enable="1"`,
		`ras_enable="0"`, `launch_order_implicit="1"`} {
		cfg, err := config.Parse("test.toml", []byte("[nccl]\n"+setting+"\n"), BuiltinCatalog)
		if err != nil {
			t.Errorf("%s: %v", setting, err)
			continue
		}
		list := cfg.NCCL.Variables()
		s, _, err := nccl.Settle(list, nil)
		if err != nil || len(s) != 1 {
			t.Errorf("%s: got %v and %v, want one setting", setting, s, err)
		}
	}
	cfg, err := config.Parse("test.toml", nil, BuiltinCatalog)
	if err != nil {
		t.Fatal(err)
	}
	if list := cfg.NCCL.Variables(); len(list) > 0 {
		t.Errorf("defaults: got %v, want none", list)
	}
}
