package certs

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/cluster/porttest"
	"github.com/hetero-train/hetero-train/engine/handshake"
)

// made creates certificates in a new folder, as if now were the current time.
func made(t *testing.T, now time.Time, arguments ...string) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "certificates")
	if _, err := call(folder, now, arguments...); err != nil {
		t.Fatal(err)
	}
	return folder
}

// call runs the command and returns its output.
func call(folder string, now time.Time, arguments ...string) (string, error) {
	var out bytes.Buffer
	a := new(cli.App)
	a.Env.Stdout = &out
	err := run(a, &flags{days: 30, authorityDays: 300}, folder, arguments, now)
	return out.String(), err
}

// load reads the certificate files of one machine.
func load(t *testing.T, authority, folder, name string) *handshake.Certificates {
	t.Helper()
	var files [][]byte
	for _, path := range []string{filepath.Join(authority, "ca.pem"), filepath.Join(folder, name+".pem"),
		filepath.Join(folder, name+"-key.pem")} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, text)
	}
	c, err := handshake.NewCertificates(files[0], files[1], files[2])
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestFiles(t *testing.T) {
	folder := made(t, time.Now(), "node-a,10.0.0.1,fd00::1", "10.0.0.2")
	for name, want := range map[string]os.FileMode{"ca.pem": 0o644, "ca-key.pem": 0o600, "node-a.pem": 0o644,
		"node-a-key.pem": 0o600, "10.0.0.2.pem": 0o644, "10.0.0.2-key.pem": 0o600} {
		info, err := os.Stat(filepath.Join(folder, name))
		if err != nil || info.Mode().Perm()&^want != 0 {
			t.Errorf("%s: got %v, %v, want mode %v", name, info, err, want)
		}
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(folder, "node-a.pem"), filepath.Join(folder, "node-a-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"node-a", "10.0.0.1", "fd00::1", "localhost", "127.0.0.1", "::1"} {
		if err := pair.Leaf.VerifyHostname(host); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	if err := pair.Leaf.VerifyHostname("node-b"); err == nil || pair.Leaf.IsCA {
		t.Error("the certificate of a machine is valid for another one, or is an authority")
	}
	before, err := os.ReadFile(filepath.Join(folder, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	if out, err := call(folder, time.Now(), "node-c"); err != nil || strings.Contains(out, "made the authority") {
		t.Errorf("a second call: got %q, %v, want the same authority", out, err)
	}
	if after, err := os.ReadFile(filepath.Join(folder, "ca.pem")); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the second call changed the authority (%v)", err)
	}
	if err := load(t, folder, folder, "node-c").Verify(); err != nil {
		t.Error(err)
	}
}

func TestFaults(t *testing.T) {
	folder := made(t, time.Now(), "node-a")
	half := made(t, time.Now(), "node-a")
	if err := os.Remove(filepath.Join(half, "ca-key.pem")); err != nil {
		t.Fatal(err)
	}
	old, early := made(t, time.Now().AddDate(-2, 0, 0), "node-a"), made(t, time.Now().AddDate(0, 0, 2), "node-a")
	for _, c := range []struct {
		folder, machine, says string
	}{
		{folder, "node-a", "exists: remove the files of node-a"},
		{folder, "../evil", "neither a host name nor an address"},
		{folder, "node-b,", `"" is neither`},
		{folder, "ca", "belongs to the authority and to"},
		{folder, "ca-key", "belongs to the authority and to"},
		{half, "node-b", "restore both files"},
		{old, "node-b", "the authority " + filepath.Join(old, "ca.pem") + " has expired: it was valid from "},
		{early, "node-b", "the authority " + filepath.Join(early, "ca.pem") + " is not valid yet: it is valid from "},
	} {
		if out, err := call(c.folder, time.Now(), c.machine); err == nil || exit.Code(err) != exit.Usage ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %q, %v, want %q", c.machine, out, err, c.says)
		}
	}
	if _, err := call(folder, time.Now(), "x-key", "x"); err == nil ||
		!strings.Contains(err.Error(), `x-key.pem belongs to "x-key" and to "x"`) {
		t.Errorf("got %v, want that two machines need the same file", err)
	}
	if _, err := call(folder, time.Now(), "node-b", "node-b,10.0.0.1"); err == nil ||
		!strings.Contains(err.Error(), "given twice") {
		t.Errorf("got %v", err)
	}
}

// If the authority limits an option, the command must warn, and must not ignore the option silently.
func TestTheAuthorityLimitsTheCertificates(t *testing.T) {
	folder := made(t, time.Now(), "node-a")
	alike := filepath.Join(t.TempDir(), "alike")
	for _, c := range []struct {
		folder string
		f      flags
		mode   os.FileMode // mode of the key file of the authority; 0: unchanged
		warns  []string
	}{
		{folder, flags{days: 30, authorityDays: 3650}, 0, nil},
		{folder, flags{days: 301, authorityDays: 3650}, 0, []string{"(--days 301), because the authority expires then"}},
		{folder, flags{days: 30, authorityDays: 20, authorityGiven: true}, 0,
			[]string{"--ca-days has no effect: the authority "}},
		{alike, flags{days: 30, authorityDays: 30, authorityGiven: true}, 0, nil},
		{folder, flags{days: 30}, 0o640, nil},
		{folder, flags{days: 30}, 0o644, []string{"other users can read the key of the authority " +
			filepath.Join(folder, "ca-key.pem")}},
	} {
		if c.mode != 0 {
			if err := os.Chmod(filepath.Join(folder, "ca-key.pem"), c.mode); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Remove(filepath.Join(folder, "node-b.pem")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(folder, "node-b-key.pem")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		var said bytes.Buffer
		a := new(cli.App)
		a.Env.Stdout, a.Env.Stderr = io.Discard, &said
		if err := run(a, &c.f, c.folder, []string{"node-b"}, time.Now()); err != nil {
			t.Fatal(err)
		}
		if len(c.warns) == 0 && said.Len() > 0 {
			t.Errorf("%+v: got %q, want no warning", c.f, said.String())
		}
		for _, want := range c.warns {
			if !strings.Contains(said.String(), want) {
				t.Errorf("%+v: got %q, want %q", c.f, said.String(), want)
			}
		}
	}
}

// Row S13: each side must refuse the other side unless it has a valid certificate of a machine of the run.
func TestCertificatesOfConnections(t *testing.T) {
	own, other := made(t, time.Now(), "rank0", "rank1"), made(t, time.Now(), "rank0", "rank1")
	// The certificates are valid for 30 days, the authority for 300.
	expired := made(t, time.Now().AddDate(0, 0, -60), "rank0", "rank1")
	early := made(t, time.Now().AddDate(0, 0, 60), "rank0", "rank1")
	tests := []struct {
		name           string
		server, client *handshake.Certificates
		dials          string
		wantClient     string // part of the client's error; "": no error
		wantServer     string
	}{
		{"valid", load(t, own, own, "rank0"), load(t, own, own, "rank1"), "rank0", "", ""},
		{"the authority of another job, client", load(t, own, own, "rank0"), load(t, own, other, "rank1"), "rank0",
			"refused the certificate of this side", "the certificate of the other side is not valid"},
		{"the authority of another job, server", load(t, own, other, "rank0"), load(t, own, own, "rank1"), "rank0",
			"signed by unknown authority", ""},
		{"another machine", load(t, own, own, "rank0"), load(t, own, own, "rank1"), "rank1",
			"certificate is valid for rank0, localhost, not rank1", ""},
		{"no certificate, client", load(t, own, own, "rank0"), nil, "rank0", "refused the certificate of this side",
			"the certificate of the other side is not valid"},
		{"no certificate, server", nil, load(t, own, own, "rank1"), "rank0", "is not valid", ""},
		{"expired, server", load(t, expired, expired, "rank0"), load(t, expired, expired, "rank1"), "rank0",
			"certificate has expired", ""},
		{"not yet valid", load(t, early, early, "rank0"), load(t, early, early, "rank1"), "rank0",
			"is not yet valid", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			near, far := porttest.Connection(t)
			served := make(chan error, 1)
			go func() {
				_, err := encrypt(far, handshake.TLS{Certificates: test.server})
				far.Close()
				served <- err
			}()
			_, err := encrypt(near, handshake.TLS{Client: true, Certificates: test.client, Server: test.dials})
			near.Close()
			serverErr := <-served
			for _, side := range []struct {
				who, want string
				err       error
			}{{"client", test.wantClient, err}, {"server", test.wantServer, serverErr}} {
				if side.want == "" && test.wantClient == "" && side.err != nil {
					t.Errorf("%s: got %v", side.who, side.err)
				}
				var refused *handshake.CertificateError
				if side.want != "" &&
					(!errors.As(side.err, &refused) || !strings.Contains(side.err.Error(), side.want)) {
					t.Errorf("%s: got %v, want %q", side.who, side.err, side.want)
				}
			}
			if test.wantClient != "" && serverErr == nil {
				t.Error("the server accepted the connection")
			}
		})
	}
}

// protocol is an arbitrary protocol. Both sides know its secret.
var protocol = handshake.Protocol{Name: [8]byte{'t', 'e', 's', 't'}, Secret: []byte("secret")}

// encrypt performs the handshake and starts TLS.
func encrypt(conn net.Conn, o handshake.TLS) (*tls.Conn, error) {
	var session *handshake.Session
	var err error
	if o.Client {
		session, err = protocol.Call(conn, nil)
	} else {
		session, err = protocol.Answer(conn, func([]byte) error { return nil })
	}
	if err != nil {
		return nil, err
	}
	return session.Encrypt(conn, o)
}

// Row S13: a client must not be able to make the server use an older version of TLS, or no TLS.
func TestNoDowngrade(t *testing.T) {
	own := made(t, time.Now(), "rank0", "rank1")
	server := handshake.TLS{Certificates: load(t, own, own, "rank0")}
	pair, err := tls.LoadX509KeyPair(filepath.Join(own, "rank1.pem"), filepath.Join(own, "rank1-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	for name, do := range map[string]func(net.Conn) (served bool){
		"TLS 1.2": func(conn net.Conn) bool {
			return tls.Client(conn, &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true,
				MaxVersion: tls.VersionTLS12}).Handshake() == nil
		},
		"plain text": func(conn net.Conn) bool {
			if _, err := conn.Write(bytes.Repeat([]byte{0, 0, 0, 1, 1}, 20)); err != nil {
				t.Error(err)
			}
			answer, _ := io.ReadAll(conn) // the connection may end with a reset, because the server leaves bytes unread
			const alert = 21              // record type of a TLS alert
			return len(answer) > 0 && answer[0] != alert
		},
	} {
		near, far := porttest.Connection(t)
		served := make(chan error, 1)
		go func() {
			_, err := encrypt(far, server)
			far.Close()
			served <- err
		}()
		if _, err := protocol.Call(near, nil); err != nil {
			t.Fatal(err)
		}
		if do(near) {
			t.Errorf("%s: the client was served", name)
		}
		near.Close()
		if err := <-served; err == nil {
			t.Errorf("%s: the server accepted the connection", name)
		}
	}
}
