package program

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

// A flag must override the launcher's address of rank 0, even if the flag has the default value. A key in a file must
// override it only if its value differs from the default.
func TestAddressOfRank0(t *testing.T) {
	const file = "../../../configs/simple_cnn.toml"
	nodes := []string{"train", "-c", file, "--nnodes", "2", "--node-rank", "1", "--nproc-per-node", "1"}
	env := []string{"MASTER_ADDR=node-a", "MASTER_PORT=1234"}
	for _, c := range []struct {
		name string
		args []string
		env  []string
		want string
	}{
		{"loopback is typed", []string{"--master-addr", "127.0.0.1"}, nil, "127.0.0.1:29500"},
		{"loopback is typed, before the environment", []string{"--master-addr", "127.0.0.1"}, env, "127.0.0.1:1234"},
		{"the usual port is typed, before the environment", []string{"--master-port", "29500"}, env, "node-a:29500"},
		{"by --set", []string{"--set", "parallel.master_addr=127.0.0.1", "--set", "parallel.master_port=29500"}, env,
			"127.0.0.1:29500"},
		{"a name is typed", []string{"--master-addr", "localhost"}, nil, "localhost:29500"},
		{"nothing is typed", nil, env, "node-a:1234"},
	} {
		o := execute(append(nodes, c.args...), c.env...)
		if got := o.opts.Assignment.Master(); o.code != exit.Done || got != c.want {
			t.Errorf("%s: got %s, exit code %d and %s, want %s", c.name, got, o.code, o.stderr, c.want)
		}
	}
	o := execute([]string{"train", "-c", file, "--nproc-per-node", "2", "--master-addr", "localhost"})
	if p := o.opts.Assignment; o.code != exit.Done || !p.Launch || p.Master() != "localhost:29500" {
		t.Errorf("a single machine: got %+v", p)
	}
	written := clitest.WriteConfig(t, "[parallel]\nmaster_addr = \"127.0.0.1\"\nmaster_port = 29500\n")
	o = execute([]string{"-c", written}, "RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=node-a", "MASTER_PORT=1234")
	if got := o.opts.Assignment.Master(); got != "node-a:1234" {
		t.Errorf("a file with all keys: got %s, want the launcher's address", got)
	}
}

// While ranks run, torchrun's store listens on MASTER_PORT. Rank 0 must therefore use another port.
func TestRanksOfTorchrunMeetBesideItsStore(t *testing.T) {
	t.Parallel()
	p, dir := buildRanks(t), t.TempDir()
	store, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	rank := func(rank int) *exec.Cmd {
		cmd := p.command(dir, "train.steps=20", "parallel.rendezvous_timeout_seconds=60")
		cmd.Env = append(os.Environ(), fmt.Sprintf("RANK=%d", rank), fmt.Sprintf("LOCAL_RANK=%d", rank), "WORLD_SIZE=2",
			"LOCAL_WORLD_SIZE=2", "GROUP_RANK=0",
			"MASTER_ADDR=localhost", fmt.Sprintf("MASTER_PORT=%d", store.Addr().(*net.TCPAddr).Port),
			"TORCHELASTIC_USE_AGENT_STORE=True", "TORCHELASTIC_RUN_ID=none")
		return cmd
	}
	lead, follow := finishBoth(t, rank(0), rank(1))
	lead.check(t, exit.Done, "")
	follow.check(t, exit.Done, "")
	if r := resultOf(t, filepath.Join(dir, "run")); r.Steps != 20 ||
		!strings.Contains(lead.stderr, "belongs to torchrun's store") {
		t.Errorf("got %+v and %s, want 20 steps and a reason for the port", r, lead.stderr)
	}
}

// A rank that refuses its data never joins. It must send the reason to rank 0. Rank 0 then does not wait for the time
// limit, and both ranks have the same exit code.
func TestARankThatRefusesItsDataEndsTheWait(t *testing.T) {
	p, dir := buildRanks(t), t.TempDir()
	shards := p.trainOnTokens(t, dir, bestOfTimes)
	val := filepath.Join(shards, "val-000000.bin")
	whole := clitest.ReadFile(t, val)
	damaged := writeText(t, dir, "damaged.bin", string(whole[:len(whole)-3]))
	for _, c := range []struct {
		path string // data.val_path of rank 1
		code int
		says string
	}{
		{foreignTokens(t, dir, "theirs.bin"), exit.Usage, "so equal tokens mean different texts"},
		{damaged, exit.Data, damaged},
	} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := listener.Addr().String()
		if err := listener.Close(); err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(address)
		rank := func(rank int, path string) ended {
			cmd := p.command(dir, "train.steps=2", "parallel.rendezvous_timeout_seconds=600", "data.val_path="+path)
			cmd.Env = append(os.Environ(), fmt.Sprintf("RANK=%d", rank), fmt.Sprintf("LOCAL_RANK=%d", rank),
				"WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT="+port)
			return finish(t, cmd, 0)
		}
		lead := make(chan ended, 1)
		go func() { lead <- rank(0, val) }()
		for listens := false; !listens && len(lead) == 0; { // rank 1 tries to connect to rank 0 for a short time only
			conn, err := net.Dial("tcp", address)
			if listens = err == nil; listens {
				conn.Close()
			} else {
				time.Sleep(20 * time.Millisecond)
			}
		}
		follow := rank(1, c.path)
		follow.check(t, c.code, c.says)
		first := <-lead
		first.check(t, c.code, c.says)
	}
}
