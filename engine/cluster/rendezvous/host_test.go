package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/cluster/porttest"
)

// patience is a time limit that no step reaches, even if the machine has much other load.
const patience = time.Minute

func TestListensWhereOthersReachRank0(t *testing.T) {
	tests := []struct {
		name, address, want string // "any": all addresses
	}{
		{"loopback", "127.0.0.1:0", "127.0.0.1"},
		{"another loopback address", "127.0.0.2:0", "127.0.0.2"},
		{"localhost", "localhost:0", "127.0.0.1"},
		{"a name", "train-0.train:0", "any"},
		{"an address of a gateway", "192.0.2.7:0", "any"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			listener, err := listen(test.address)
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			ip := listener.Addr().(*net.TCPAddr).IP
			if test.want == "any" && !ip.IsUnspecified() || test.want != "any" && ip.String() != test.want &&
				!(test.address == "localhost:0" && ip.IsLoopback()) {
				t.Errorf("listens on %v, want %s", ip, test.want)
			}
			if beyond := beyondLoopback(listener.Addr().String()); beyond != (test.want == "any") {
				t.Errorf("beyond loopback is %v", beyond)
			}
		})
	}
}

func TestBeyondLoopbackATokenIsNeeded(t *testing.T) {
	tests := []struct {
		name    string
		options Options
		refused bool
	}{
		{"no token", Options{Address: "192.0.2.7:0"}, true},
		{"a token", Options{Address: "192.0.2.7:0", Token: newToken()}, false},
		{"leave to be insecure", Options{Address: "192.0.2.7:0", Insecure: true}, false},
		{"loopback", Options{Address: "127.0.0.1:0"}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.options.WorldSize, test.options.Timeout = 2, 50*time.Millisecond
			_, err := Join(context.Background(), test.options)
			var listening *ListenError
			if refused := errors.As(err, &listening) &&
				strings.Contains(err.Error(), "set a token"); refused != test.refused {
				t.Errorf("got %v, refused should be %v", err, test.refused)
			}
		})
	}
}

func TestPortInUse(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	began := time.Now()
	_, err = Join(context.Background(), Options{WorldSize: 2, Address: other.Addr().String()})
	want := fmt.Sprintf("rank 0 cannot listen on %s: listen tcp %[1]s: bind: address already in use; "+
		"set another port on all ranks (MASTER_PORT or parallel.master_port), or end the program that uses this one",
		other.Addr())
	var listening *ListenError
	if !errors.As(err, &listening) || !errors.Is(err, syscall.EADDRINUSE) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if took := time.Since(began); took > patience { // the default time-out is five minutes
		t.Errorf("took %v, want to fail at once", took)
	}
}

func TestNobodyListens(t *testing.T) {
	address := porttest.Refusing(t)
	// The cause must be in the error even if the time-out is over.
	dial := func(_ context.Context, address string) (net.Conn, error) { return net.Dial("tcp", address) }
	_, err := Join(context.Background(),
		Options{Rank: 1, WorldSize: 2, Address: address, Timeout: 200 * time.Millisecond, Dial: dial})
	var unreachable *UnreachableError
	if !errors.As(err, &unreachable) || !errors.Is(err, syscall.ECONNREFUSED) ||
		!strings.Contains(err.Error(), address) {
		t.Errorf("got %v, want that the connection was refused", err)
	}
}

func TestPortIsFreeAfterClose(t *testing.T) {
	address := fmt.Sprintf("127.0.0.1:%d", porttest.Free(t))
	for range 3 {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		results := joinAll([]Options{
			{WorldSize: 2, Address: address, Listener: listener},
			{Rank: 1, WorldSize: 2, Address: address},
		})
		for rank, result := range results {
			if result.err != nil {
				t.Fatalf("rank %d: %v", rank, result.err)
			}
		}
		closeJoined(results)
	}
}

func TestHostIsTheSameForProcessesOfOneNamespace(t *testing.T) {
	a, b := HostID(), HostID()
	if a == "" || a != b || len(a) > maxText {
		t.Errorf("got %q and %q", a, b)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err == nil && !strings.HasPrefix(a, strings.TrimSpace(string(boot))+"/") {
		t.Errorf("got %q, want it to begin with the boot id %q", a, boot)
	}
}

func TestTokensAreNotPrinted(t *testing.T) {
	token := newToken()
	var text strings.Builder
	slog.New(slog.NewTextHandler(&text, nil)).Info("joining", "token", token, "options", Options{Token: token})
	fmt.Fprintf(&text, "%v %s %q %+v %#v", token, token, token, Options{Token: token}, Options{Token: token})
	if strings.Contains(text.String(), string(token)) {
		t.Errorf("the token is in %s", text.String())
	}
}
