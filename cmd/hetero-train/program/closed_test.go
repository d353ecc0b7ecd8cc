package program

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/cluster/porttest"
	"github.com/hetero-train/hetero-train/engine/handshake"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// jobToken is the secret of the runs in this file.
const jobToken = "4f1c0a5e7d9b8236-of-the-tests"

// rendezvousProtocol returns the protocol of rank discovery with this secret. Any program that knows the secret can use
// it.
func rendezvousProtocol(secret string) handshake.Protocol {
	return handshake.Protocol{Name: [8]byte{'h', 't', 'r', 'e', 'n', 'd', 'z', 2}, Secret: []byte(secret)}
}

// nodeOf returns the command of one of two nodes with one rank each. Gradients travel over the network.
func nodeOf(p program, output string, node, port int, set ...string) *exec.Cmd {
	cmd := p.command(filepath.Join(output, fmt.Sprint("node", node)),
		append([]string{"parallel.shared_memory=off"}, set...)...)
	cmd.Args = append(cmd.Args, "--nnodes", "2", "--node-rank", fmt.Sprint(node), "--nproc-per-node", "1",
		"--master-addr", "127.0.0.1", "--master-port", fmt.Sprint(port))
	cmd.Args = append(cmd.Args[:1], append([]string{"train"}, cmd.Args[1:]...)...)
	cmd.Env = append(os.Environ(), "HETERO_TOKEN="+jobToken)
	return cmd
}

// recorder forwards connections to a port, and stores the bytes of both directions.
type recorder struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	sent  [][]byte // bytes that each connection has sent to the port
	heard bytes.Buffer
}

func newRecorder(t *testing.T, to string) *recorder {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	r := &recorder{listener: listener, to: to}
	go r.serve()
	return r
}

func (r *recorder) port() int { return r.listener.Addr().(*net.TCPAddr).Port }

func (r *recorder) serve() {
	for {
		near, err := r.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", r.to)
		if err != nil {
			near.Close() // rank 0 is not listening yet
			continue
		}
		r.mu.Lock()
		r.sent = append(r.sent, nil)
		number := len(r.sent) - 1
		r.mu.Unlock()
		go r.pass(far, near, func(piece []byte) { r.sent[number] = append(r.sent[number], piece...) })
		go r.pass(near, far, func(piece []byte) {})
	}
}

func (r *recorder) pass(to, from net.Conn, keep func([]byte)) {
	defer to.Close()
	piece := make([]byte, 32<<10)
	for {
		n, err := from.Read(piece)
		r.mu.Lock()
		keep(piece[:n])
		r.heard.Write(piece[:n])
		r.mu.Unlock()
		if _, writeErr := to.Write(piece[:n]); err != nil || writeErr != nil {
			return
		}
	}
}

// A program between the machines sees all connections of rank discovery. It must learn nothing from them, and replaying
// recorded bytes must have no effect (rows S1 and S2).
func TestTheControlPlaneIsClosed(t *testing.T) {
	t.Parallel()
	p, dir, port := buildRanks(t), t.TempDir(), porttest.Free(t)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	between := newRecorder(t, address)
	first := watch(t, nodeOf(p, dir, 0, port, "train.steps=1000000", "train.log_interval=1"))
	second := watch(t, nodeOf(p, dir, 1, between.port(), "train.steps=1000000", "train.log_interval=1"))
	first.await(t, "step 2/")

	between.mu.Lock()
	recorded, heard := bytes.Clone(between.sent[0]), bytes.Clone(between.heard.Bytes())
	connections := len(between.sent)
	between.mu.Unlock()
	// The ranks exchange all settings, including the ones below, and the name of their machine. None may appear in the
	// recorded bytes.
	host, _ := os.Hostname()
	for _, text := range []string{"synthetic_image", "simple_cnn", host, jobToken} {
		if len(text) < 8 {
			continue // ciphertext can contain such a short name by chance
		}
		if bytes.Contains(heard, []byte(text)) {
			t.Errorf("%q travels in clear between the ranks", text)
		}
	}
	if len(recorded) < 1000 || connections == 0 {
		t.Fatalf("recorded %d bytes of %d connections", len(recorded), connections)
	}
	replay, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer replay.Close()
	replay.SetDeadline(time.Now().Add(patience))
	if _, err := replay.Write(recorded); err != nil {
		t.Fatal(err)
	}
	answer, _ := io.ReadAll(replay) // the connection may end with a reset, because the server leaves bytes unread
	if len(answer) > handshake.GreetingBytes+1 {
		t.Errorf("a recorded connection got %d bytes, want a greeting and a refusal", len(answer))
	}
	for name, secret := range map[string]string{"no token": "", "another token": "another-token-0123456789"} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(patience))
		if _, err := rendezvousProtocol(secret).Call(conn, nil); err == nil {
			t.Errorf("a program with %s was let in", name)
		}
		conn.Close()
	}
	first.await(t, "rejected a connection to the rendezvous port")
	first.cmd.Process.Signal(os.Interrupt)
	first.end(t, exit.Interrupted, "saved")
	second.end(t, exit.Terminated, "saved") // exit code after the signal to another rank
}

// strangers contains the behaviours on a connection of programs that lack the token, by name (rows S1 to S3 of
// docs/reliability.md).
var strangers = map[string]func(conn net.Conn){
	"connect": func(net.Conn) {},
	"hold":    func(conn net.Conn) { io.Copy(io.Discard, conn) },
	"garbage": func(conn net.Conn) { conn.Write(noise(4096)); io.Copy(io.Discard, conn) },
	"http": func(conn net.Conn) {
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		io.Copy(io.Discard, conn)
	},
	"wrong token": func(conn net.Conn) { rendezvousProtocol("another-token-0123456789").Call(conn, nil) },
	"slow": func(conn net.Conn) {
		for _, b := range append([]byte("htrendz\x02"), noise(1000)...) {
			if _, err := conn.Write([]byte{b}); err != nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	},
	"greeting, then silence": func(conn net.Conn) {
		conn.Write(append([]byte("htrendz\x02"), noise(handshake.NonceBytes)...))
		io.Copy(io.Discard, conn)
	},
	"a frame of 2^64 bytes": func(conn net.Conn) {
		conn.Write(append([]byte("htrendz\x02"), bytes.Repeat([]byte{255}, 64<<10)...))
		io.Copy(io.Discard, conn)
	},
	"TLS": func(conn net.Conn) {
		tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).Handshake()
	},
}

func noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

// besiege connects to a port as all kinds of strangers, at most rate times a second, until the context ends. It counts
// the connections.
func besiege(ctx context.Context, address string, rate int, count *atomic.Int64) {
	var all sync.WaitGroup
	places := make(chan struct{}, 600) // bounds the open connections; more than the port allows
	var kinds []func(net.Conn)
	for _, do := range strangers {
		kinds = append(kinds, do)
	}
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			all.Wait()
			return
		case <-tick.C:
		}
		select {
		case places <- struct{}{}:
		default:
			continue
		}
		all.Go(func() {
			defer func() { <-places }()
			conn, err := net.DialTimeout("tcp", address, 5*time.Second)
			if err != nil {
				return
			}
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(20 * time.Second))
			count.Add(1)
			kinds[i%len(kinds)](conn)
		})
	}
}

// Strangers at the port of rank 0 must change no bit of the result, whether they connect before or during training
// (rows S1 to S3).
func TestStrangersChangeNothing(t *testing.T) {
	t.Parallel()
	p, dir := buildRanks(t), t.TempDir()
	steps := 200
	if needtest.Hostile.On() {
		steps = 20000
	}
	set := []string{fmt.Sprint("train.steps=", steps), "parallel.encrypt=true", "balance.policy=none"}
	train := func(name string, attack bool) (weights []byte, connections int64) {
		port := porttest.Free(t)
		address := fmt.Sprintf("127.0.0.1:%d", port)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		first := watch(t, nodeOf(p, filepath.Join(dir, name), 0, port, set...))
		done := make(chan struct{})
		var count atomic.Int64
		if attack {
			for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
				conn, err := net.Dial("tcp", address)
				if err == nil {
					conn.Close()
					break
				}
				if time.Now().After(deadline) {
					t.Fatal(err)
				}
			}
			go func() {
				defer close(done)
				besiege(ctx, address, 300, &count)
			}()
			// Strangers connect before the second rank does.
			for deadline := time.Now().Add(patience); count.Load() < 200; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("only %d strangers connected", count.Load())
				}
			}
		}
		second := watch(t, nodeOf(p, filepath.Join(dir, name), 1, port, set...))
		second.end(t, exit.Done, "")
		first.end(t, exit.Done, "")
		stop()
		if attack {
			<-done
			connections = count.Load()
			first.mu.Lock()
			refusals := strings.Count(first.text.String(), "rejected a connection to the rendezvous port")
			first.mu.Unlock()
			if refusals == 0 {
				t.Error("no stranger was refused")
			}
			t.Logf("%d connections, %d lines about them", connections, refusals)
		}
		run := filepath.Join(dir, name, "node0", "run")
		resultOf(t, run) // fails the test unless the run has succeeded
		return clitest.ReadFile(t, filepath.Join(run, "checkpoints", checkpoint.StepName(int64(steps)),
			"model.safetensors")), connections
	}
	want, _ := train("alone", false)
	got, connections := train("besieged", true)
	if !bytes.Equal(got, want) {
		t.Errorf("the weights differ from those of a run without the %d strangers", connections)
	}
}

// With certificates, ranks must accept only machines whose certificate the authority has signed (row S13).
func TestMachinesNeedCertificates(t *testing.T) {
	t.Parallel()
	p, dir := buildRanks(t), t.TempDir()
	made := func(folder string, arguments ...string) string {
		folder = filepath.Join(dir, folder)
		if out, err := exec.Command(p.path, append([]string{"certs", folder}, arguments...)...).CombinedOutput(); err !=
			nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return folder
	}
	own, other := made("own", "node-a,127.0.0.1", "node-b"), made("other", "node-b")
	settings := func(folder, name string) []string {
		return []string{"train.steps=20", "parallel.rendezvous_timeout_seconds=60",
			"parallel.ca_file=" + filepath.Join(folder, "ca.pem"),
			"parallel.cert_file=" + filepath.Join(folder, name+".pem"),
			"parallel.key_file=" + filepath.Join(folder, name+"-key.pem")}
	}
	none := []string{"train.steps=20", "parallel.rendezvous_timeout_seconds=60"}
	for name, c := range map[string]struct {
		second []string
		code   int
		says   string
	}{
		"the same authority": {settings(own, "node-b"), exit.Done, ""},
		"another authority": {settings(other, "node-b"), exit.Usage,
			"the certificate of the other side is not valid"},
		"no certificate": {none, exit.Usage, "refused the certificate of this side"},
		"a key that does not fit": {append(settings(own, "node-b"), "parallel.key_file="+filepath.Join(own,
			"node-a-key.pem")), exit.Usage, "private key does not match public key"},
		"a certificate of another authority than its file": {append(settings(own, "node-b"),
			"parallel.ca_file="+filepath.Join(other, "ca.pem")), exit.Usage,
			"not a valid certificate of the authority"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			port := porttest.Free(t)
			output := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
			first := watch(t, nodeOf(p, output, 0, port, settings(own, "node-a")...))
			second := watch(t, nodeOf(p, output, 1, port, c.second...))
			second.end(t, c.code, c.says)
			if c.code == exit.Done {
				first.end(t, exit.Done, "")
			}
		})
	}
}

// Ranks on several machines need a token. The error must state how to provide one.
func TestSeveralMachinesNeedAToken(t *testing.T) {
	t.Parallel()
	p, dir, port := buildRanks(t), t.TempDir(), porttest.Free(t)
	cmd := nodeOf(p, dir, 0, port)
	for i, text := range cmd.Args {
		if text == "127.0.0.1" {
			cmd.Args[i] = "0.0.0.0"
		}
	}
	cmd.Env = nil
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "HETERO_TOKEN") {
			cmd.Env = append(cmd.Env, pair)
		}
	}
	out, err := cmd.CombinedOutput()
	if code := exitOf(t, err); code != exit.Usage || !strings.Contains(string(out), "set a token (HETERO_TOKEN") {
		t.Errorf("got exit code %d and\n%s", code, out)
	}
	// As in Kubernetes, the path is a link to a link to a file that belongs to root and that a group may read.
	file := filepath.Join(dir, "..data", "token")
	link := filepath.Join(dir, "token")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(jobToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		if err := os.Chmod(file, 0o440); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join("..data", "token"), link); err != nil {
		t.Fatal(err)
	}
	first, second := nodeOf(p, dir, 0, port, "train.steps=20"), nodeOf(p, dir, 1, port, "train.steps=20")
	first.Env = append(append([]string{}, cmd.Env...), "HETERO_TOKEN_FILE="+link)
	a, b := watch(t, first), watch(t, second) // the second rank gets the token itself instead of a file
	a.end(t, exit.Done, "")
	b.end(t, exit.Done, "")
}
