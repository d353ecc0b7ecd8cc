//go:build cgo && linux

package shm

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/cluster/ranktest"
	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// roleVariable contains the role of a child process. The child runs the test binary as one rank.
const roleVariable = "HETERO_SHM_TEST_ROLE"

// role describes what a child does.
type role struct {
	Config Config
	// Rounds is the number of rounds; 0: no limit. A round is an all-reduce of f32 and one of bf16, with Elements
	// elements each.
	Rounds, Elements int
}

// report is the last line of a child's output.
type report struct {
	Error   string
	Died    bool  // the error is a PeerError with cause ErrDied
	Peer    int   // rank of the PeerError; -1: not a PeerError
	Missing []int // ranks that are missing or behind, according to the TimeoutError
	Hash    string
}

func TestMain(m *testing.M) {
	ranktest.Main(m, roleVariable, func(r role) {
		line, err := json.Marshal(reportOf(r.run()))
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(string(line))
	})
}

func reportOf(hash string, err error) report {
	r := report{Hash: hash, Peer: -1}
	if err != nil {
		r.Error = err.Error()
	}
	var peer *collective.PeerError
	if errors.As(err, &peer) {
		r.Peer, r.Died = peer.Rank, errors.Is(err, collective.ErrDied)
	}
	var late *collective.TimeoutError
	if errors.As(err, &late) {
		r.Missing = append(late.Missing, late.Behind...)
	}
	return r
}

// run is the main function of a child. It prints "connected", then "round" after the first round.
func (r role) run() (hash string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	comm, err := Connect(ctx, r.Config)
	if err != nil {
		return "", err
	}
	fmt.Println("connected")
	dev := reference.New()
	f32, err := dev.Alloc(int64(4 * r.Elements))
	if err != nil {
		return "", err
	}
	bf16, err := dev.Alloc(int64(2 * r.Elements))
	if err != nil {
		return "", err
	}
	rng := rand.New(rand.NewPCG(7, uint64(r.Config.Rank)))
	sum := sha256.New()
	for round := 0; r.Rounds == 0 || round < r.Rounds; round++ {
		if round == 0 || r.Rounds > 0 {
			fill(rng, f32.Host(), bf16.Host())
		}
		for _, op := range []collective.Op{
			collective.AllReduce{Name: fmt.Sprintf("f32 of round %d", round), Buffer: device.Whole(f32),
				DType: tensor.F32},
			collective.AllReduce{Name: fmt.Sprintf("bf16 of round %d", round), Buffer: device.Whole(bf16),
				DType: tensor.BF16},
		} {
			if err := comm.Enqueue(op); err != nil {
				return "", err
			}
		}
		if err := comm.Sync(context.Background()); err != nil {
			return "", errors.Join(err, comm.Close())
		}
		sum.Write(f32.Host())
		sum.Write(bf16.Host())
		if round == 0 {
			fmt.Println("round")
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), comm.Close()
}

// fill writes numbers of very different magnitudes. Some are denormal or infinite.
func fill(rng *rand.Rand, f32, bf16 []byte) {
	for i := range len(f32) / 4 {
		v := float32(rng.NormFloat64() * math.Pow(2, float64(rng.IntN(40)-20)))
		switch rng.IntN(1000) {
		case 0:
			v = float32(math.Inf(1))
		case 1:
			v *= 1e-38
		}
		binary.LittleEndian.PutUint32(f32[4*i:], math.Float32bits(v))
		binary.LittleEndian.PutUint16(bf16[2*i:], tensor.BF16FromF32(v))
	}
}

// child is a rank in its own process.
type child struct {
	address string // address at which the ranks meet; "": the child runs alone
	t       *testing.T
	cmd     *exec.Cmd
	out     *bufio.Reader
}

// start starts a child. environment contains entries of the form "NAME=value".
func start(t *testing.T, r role, environment ...string) *child {
	t.Helper()
	need(t)
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: exec.Command(program)}
	c.cmd.Env = append(append(os.Environ(), roleVariable+"="+string(text)), environment...)
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.cmd.Process.Kill()
		c.cmd.Wait()
	})
	return c
}

// says waits for a line of output, which must be want.
func (c *child) says(want string) {
	c.t.Helper()
	if line, err := c.out.ReadString('\n'); strings.TrimSpace(line) != want {
		c.t.Fatalf("got %q, %v; want %q", line, err, want)
	}
}

// report waits until the child ends, and returns its report.
func (c *child) report() (r report) {
	c.t.Helper()
	all, err := io.ReadAll(c.out)
	lines := strings.Split(strings.TrimSpace(string(all)), "\n")
	if err == nil {
		err = json.Unmarshal([]byte(lines[len(lines)-1]), &r)
	}
	if err != nil {
		c.t.Errorf("no report in %q: %v", all, err)
	}
	return r
}

func (c *child) signal(s os.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}

func startAll(t *testing.T, size int, r role) []*child {
	t.Helper()
	r.Config.Size, r.Config.Address, r.Config.Token = size, NewAddress(), "secret"
	children := make([]*child, size)
	for rank := range children {
		r.Config.Rank = rank
		children[rank] = start(t, r)
		children[rank].address = r.Config.Address
	}
	for _, c := range children {
		c.says("connected")
		c.says("round")
	}
	return children
}

// endless repeats all-reduces of 16 MB, so that every fault occurs during an all-reduce.
var endless = role{Elements: 4 << 20}

func TestKilledProcessIsNamed(t *testing.T) {
	for _, victim := range []int{0, 1, 2} {
		t.Run(fmt.Sprintf("rank %d", victim), func(t *testing.T) {
			children := startAll(t, 3, endless)
			children[victim].signal(syscall.SIGKILL)
			for rank, c := range children {
				if rank == victim {
					continue
				}
				if r := c.report(); r.Peer != victim || !r.Died { // the death itself must be detected, not a time-out
					t.Errorf("rank %d: got %+v, want that rank %d died", rank, r, victim)
				}
			}
		})
	}
}

func TestKillingEverybodyLeavesNothing(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()) // other tests create folders in the default folder
	children := startAll(t, 2, endless)
	before := leftovers(t)
	for _, c := range children {
		c.signal(syscall.SIGKILL)
	}
	for _, c := range children {
		c.cmd.Wait()
	}
	if strings.Contains(sockets(t), children[0].address) { // other processes of this machine may also have sockets
		t.Error("a socket is left in the abstract namespace")
	}
	for _, name := range leftovers(t) {
		if !slices.Contains(before, name) {
			t.Errorf("left behind: %s", name)
		}
	}
}

func sockets(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		needtest.Missing(t, "system", err)
	}
	return string(text)
}

// leftovers returns the names of this program's files in the folders of named shared memory and of sockets.
func leftovers(t *testing.T) (names []string) {
	t.Helper()
	for _, dir := range []string{"/dev/shm", os.TempDir()} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if strings.Contains(e.Name(), "hetero-train") {
				names = append(names, e.Name())
			}
		}
	}
	return names
}

func TestStoppedProcessIsNamed(t *testing.T) {
	// The first time-out is as long as thousands of rounds. Only a very busy machine needs the second time-out.
	for _, limit := range []time.Duration{4 * time.Second, 40 * time.Second} {
		r := role{Elements: 4 << 14}
		r.Config.Timeout = limit
		children := startAll(t, 3, r)
		const victim = 1
		children[victim].signal(syscall.SIGSTOP)
		named := true
		for rank, c := range children {
			if rank == victim {
				continue
			}
			r := c.report()
			if slices.Equal(r.Missing, []int{victim}) && strings.Contains(r.Error, "of round") {
				continue
			}
			if named = false; limit == 40*time.Second {
				t.Errorf("rank %d: got %+v, want a time-out that names rank %d and the operation", rank, r, victim)
			}
		}
		children[victim].signal(syscall.SIGCONT)
		if r := children[victim].report(); r.Error == "" {
			t.Error("the process that was stopped went on as if nothing had happened")
		}
		if named {
			return
		}
	}
}

// The ranks of a group use different instruction sets, and the groups use different sets of them. All sums must be
// bit-equal.
func TestUnlikeCPUsGiveTheSameBits(t *testing.T) {
	hashes := map[string]string{}
	for _, sets := range [][]string{{"generic", "avx2", "avx512"}, {"avx512", "avx512", "avx512"},
		{"avx2", "generic", "generic"}} {
		name := strings.Join(sets, " ")
		r := role{Config: Config{Size: len(sets), Address: NewAddress()}, Rounds: 3, Elements: 200_003}
		var children []*child
		for rank, set := range sets {
			r.Config.Rank = rank
			children = append(children, start(t, r, "HETERO_CPU_ISA="+set))
		}
		for rank, c := range children {
			got := c.report()
			if got.Error != "" || got.Hash == "" {
				t.Fatalf("%s: rank %d: %+v", name, rank, got)
			}
			hashes[got.Hash] = fmt.Sprintf("%s, rank %d", name, rank)
		}
	}
	if len(hashes) != 1 {
		t.Errorf("got different bits: %v", hashes)
	}
}
