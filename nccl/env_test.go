package nccl

import (
	"slices"
	"strings"
	"testing"
)

func TestSettingsAreSettled(t *testing.T) {
	got, warnings, err := Settle([][2]string{{"NCCL_ALGO", "Ring"}, {"NCCL_MAX_NCHANNELS", "8"}},
		[]string{"PATH=/bin", "NCCL_SOCKET_IFNAME=^docker,lo", "NCCL_ALGO=Tree", "NCCL_IB_TIMEOUT=22",
			"NCCL_WORK_FIFO_BYTES=65536", "NCCL_PROTO=", "NCCL_MAX_NCHANNELS=8"})
	if err != nil {
		t.Fatal(err)
	}
	want := Settings{{"NCCL_ALGO", "Ring", "[nccl]"}, {"NCCL_IB_TIMEOUT", "22", "environment"},
		{"NCCL_MAX_NCHANNELS", "8", "[nccl]"}, {"NCCL_SOCKET_IFNAME", "^docker,lo", "environment"}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	wantWarnings := []string{`environment variable NCCL_ALGO="Tree" has no effect, because [nccl] sets Ring`, `environment variable NCCL_WORK_FIFO_BYTES="65536" is not a known setting: the program passes it to NCCL unchanged`}
	if !slices.Equal(warnings, wantWarnings) {
		t.Errorf("got the warnings %q, want %q", warnings, wantWarnings)
	}
}

func TestSettingsThatAreRefused(t *testing.T) {
	for _, c := range []struct{ variable, want string }{
		{"NCCL_NET_PLUGIN=/tmp/evil.so", "load code or write files"},
		{"NCCL_TUNER_PLUGIN=x", "load code or write files"},
		{"NCCL_PROFILER_PLUGIN=x", "load code or write files"},
		{"NCCL_ENV_PLUGIN=x", "load code or write files"},
		{"NCCL_TOPO_DUMP_FILE=/etc/passwd", "load code or write files"},
		{"NCCL_GRAPH_DUMP_FILE=x", "load code or write files"},
		{"NCCL_DEBUG_FILE=x", "load code or write files"},
		{"NCCL_CONF_FILE=x", "load code or write files"},
		{"NCCL_TUNER_CONFIG_FILE=x", "load code or write files"},
		{"NCCL_INSPECTOR_DUMP_DIR=x", "load code or write files"},
		{"NCCL_CUDA_PATH=x", "load code or write files"},
		{"NCCL_ALGO=Rong", `environment: NCCL_ALGO: got "Rong", want some of Tree, Ring, CollnetDirect`},
		{"NCCL_ALGO=Ring,Rong", `got "Rong"`},
		{"NCCL_ALGO=Ring,", `got "", want some of`},
		{"NCCL_ALGO=^", `got "", want some of`},
		{"NCCL_ALGO=Ring;Tree", `got "Tree" after a semicolon, want an operation`},
		{"NCCL_ALGO=Ring;alltoall:Tree", `got operation "alltoall", want Broadcast, `},
		{"NCCL_PROTO=LL;allreduce:LL127", `NCCL_PROTO: got "LL127", want some of LL, LL128, Simple`},
		{"NCCL_DEBUG=LOUD", `NCCL_DEBUG: got "LOUD", want VERSION, WARN, INFO, TRACE`},
		{"NCCL_NTHREADS=100", `got "100", want 64, 128, 256, 512`},
		{"NCCL_IB_TIMEOUT=99", `got "99", want a whole number from 1 to 22`},
		{"NCCL_BUFFSIZE=big", `got "big", want a whole number`},
		{"NCCL_SOCKET_IFNAME=eth0\nNCCL_NET_PLUGIN=x", "without spaces"},
		{"NCCL_IB_HCA=" + strings.Repeat("x", 300), "at most 256"},
	} {
		if s, _, err := Settle(nil, []string{c.variable}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v and %v, want %q", c.variable, s, err, c.want)
		}
	}
	if _, _, err := Settle([][2]string{{"NCCL_NET_PLUGIN", "x"}}, nil); err == nil ||
		!strings.Contains(err.Error(), "[nccl]: NCCL_NET_PLUGIN") {
		t.Errorf("in [nccl]: got %v", err)
	}
}

func TestSettingsInNCCLsOwnWordsPass(t *testing.T) {
	for _, variable := range []string{"NCCL_ALGO=ring,CollNetDirect;allreduce:tree,collnetdirect;broadcast:ring",
		"NCCL_ALGO=^NVLSTree,PAT",
		"NCCL_ALGO=allreduce:Tree", "NCCL_PROTO=^LL128;AllReduce:LL128", "NCCL_PROTO=simple", "NCCL_DEBUG=info",
		"NCCL_NET=socket"} {
		name, value, _ := strings.Cut(variable, "=")
		got, _, err := Settle(nil, []string{variable})
		if want := (Settings{{name, value, "environment"}}); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v and %v, want it as it is", variable, got, err)
		}
	}
}

func TestNoAllowedSettingLoadsCodeOrWritesFiles(t *testing.T) {
	for name := range allowed {
		if refused(name) {
			t.Errorf("%s is on the list and refused", name)
		}
	}
}

func TestSettingsByVersion(t *testing.T) {
	s := Settings{{"NCCL_PAT_ENABLE", "1", "[nccl]"}, {"NCCL_ALGO", "Ring", "[nccl]"}}
	if got := s.TooNew(22203); !slices.Equal(got, []string{"NCCL_PAT_ENABLE (from 2.23.0 on)"}) {
		t.Errorf("2.22.3: got %q", got)
	}
	if got := s.TooNew(22809); got != nil {
		t.Errorf("2.28.9: got %q, want none", got)
	}
	if got, want := Version(22809).String(), "2.28.9"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
