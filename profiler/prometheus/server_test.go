package prometheus

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/cluster/porttest"
)

func serve(t *testing.T, o ServerOptions) *Server {
	t.Helper()
	o.Metrics = full()
	s, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// answer returns the status and the body of a request.
func answer(t *testing.T, s *Server, method, path string, change func(*http.Request)) (int, string) {
	t.Helper()
	r, err := http.NewRequest(method, "http://"+s.Address()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(r)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if errors.Is(err, syscall.ECONNRESET) { // the server refuses a large header before it has read all of it
		return http.StatusRequestHeaderFieldsTooLarge, ""
	}
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestWhoMayReadTheMetrics(t *testing.T) {
	token := func(text string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", text) }
	}
	host := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	const local = "127.0.0.1:0"
	for _, c := range []struct {
		name         string
		o            ServerOptions
		method, path string
		change       func(*http.Request)
		want         int
	}{
		{"a program of this machine", ServerOptions{Address: local}, "GET", "/metrics", nil, 200},
		{"localhost by name", ServerOptions{Address: local}, "GET", "/metrics", host("localhost:9464"), 200},
		{"a name that points to this machine", ServerOptions{Address: local}, "GET", "/metrics",
			host("evil.example:9464"), 403},
		{"another address", ServerOptions{Address: local}, "GET", "/metrics", host("10.0.0.7"), 403},
		{"another path", ServerOptions{Address: local}, "GET", "/", nil, 404},
		{"a path that goes up", ServerOptions{Address: local}, "GET", "/metrics/..%2f..%2fetc/passwd", nil, 404},
		{"POST", ServerOptions{Address: local}, "POST", "/metrics", nil, 405},
		{"DELETE", ServerOptions{Address: local}, "DELETE", "/metrics", nil, 405},
		{"a large header", ServerOptions{Address: local}, "GET", "/metrics", func(r *http.Request) {
			r.Header.Set("X-Large", strings.Repeat("x", 64<<10))
		}, 431},
		{"no token", ServerOptions{Address: "0.0.0.0:0", Token: "s3cr3t"}, "GET", "/metrics", nil, 401},
		{"a wrong token", ServerOptions{Address: "0.0.0.0:0", Token: "s3cr3t"}, "GET", "/metrics",
			token("Bearer s3cr3u"), 401},
		{"a part of the token", ServerOptions{Address: "0.0.0.0:0", Token: "s3cr3t"}, "GET", "/metrics",
			token("Bearer s3cr"), 401},
		{"another scheme", ServerOptions{Address: "0.0.0.0:0", Token: "s3cr3t"}, "GET", "/metrics",
			token("Basic s3cr3t"), 401},
		{"the token in the address", ServerOptions{Address: "0.0.0.0:0", Token: "s3cr3t"}, "GET",
			"/metrics?token=s3cr3t", nil, 401},
		{"the token", ServerOptions{Address: "0.0.0.0:0", Token: "s3cr3t"}, "GET", "/metrics", token("Bearer s3cr3t"),
			200},
		{"the token on this machine", ServerOptions{Address: local, Token: "s3cr3t"}, "GET", "/metrics", nil, 401},
		{"another machine, insecure", ServerOptions{Address: "0.0.0.0:0", Insecure: true}, "GET", "/metrics",
			host("node7:9464"), 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, body := answer(t, serve(t, c.o), c.method, c.path, c.change)
			if code != c.want || (code == 200) != strings.Contains(body, "hetero_train_run_step 12\n") ||
				strings.Contains(body, "s3cr3t") {
				t.Errorf("got status %d, want %d; body %.200q", code, c.want, body)
			}
		})
	}
}

// The server must close the connection after a refusal, and keep it after an answer.
func TestRefusedClientsKeepNoConnection(t *testing.T) {
	const token = "0123456789abcdef"
	s := serve(t, ServerOptions{Address: "127.0.0.1:0", Token: token})
	for _, c := range []struct {
		line, token string
		status      int
		closed      bool
	}{{"GET /metrics", "wrong", 401, true}, {"GET /other", token, 404, true}, {"POST /metrics", token, 405, true},
		{"GET /metrics", token, 200, false}} {
		conn, err := net.Dial("tcp", s.Address())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: 0\r\n\r\n",
			c.line, c.token)
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != c.status || answer.Close != c.closed {
			t.Errorf("%s: got status %d and close %v, want %d and %v", c.line, answer.StatusCode, answer.Close,
				c.status, c.closed)
		}
	}
}

func TestAddresses(t *testing.T) {
	for _, c := range []struct {
		address string
		exposed bool
	}{{"0.0.0.0:9464", true}, {":9464", true}, {"[::]:9464", true}, {"node7:9464", true}, {"10.1.2.3:9464", true},
		{"127.0.0.1", false}, {"127.0.0.1:99999", false}, {"127.0.0.1:http", false}, {"", false}} {
		_, err := Listen(ServerOptions{Address: c.address, Metrics: full()})
		if err == nil || errors.Is(err, ErrExposed) != c.exposed {
			t.Errorf("%q: got %v, want an error that says exposed: %v", c.address, err, c.exposed)
		}
	}
	for _, address := range []string{"127.0.0.1:0", "localhost:0", "127.0.0.9:0"} {
		s, err := Listen(ServerOptions{Address: address, Metrics: full()})
		if err != nil {
			t.Errorf("%q: got %v, want a server", address, err)
			continue
		}
		s.Close()
	}
}

// dial opens connection number i of a test. The source address changes with i, so the rate limit per address does not
// delay the test. On some systems, only one loopback address exists.
func dial(s *Server, i int) (net.Conn, error) {
	var dialer net.Dialer
	if runtime.GOOS == "linux" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+i/16))}
	}
	return dialer.Dial("tcp", s.Address())
}

// Without a token, clients may keep their connections after a scrape. They must lose these connections when new clients
// need them.
func TestKeptConnectionsKeepNobodyOut(t *testing.T) {
	s := serve(t, ServerOptions{Address: "127.0.0.1:0"})
	scrape := func(i int) error {
		c, err := dial(s, i)
		if err != nil {
			return err
		}
		t.Cleanup(func() { c.Close() })
		if _, err := io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"); err != nil {
			return err
		}
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err == nil && response.StatusCode != http.StatusOK {
			err = errors.New(response.Status)
		}
		return err
	}
	for i := range 2 * mostConnections {
		if err := scrape(i); err != nil {
			t.Fatalf("scrape %d: %v", i, err)
		}
	}
}

// Clients that connect and send nothing use all connections. There must not be more than the limit, and Close must not
// wait for these clients.
func TestSilentClients(t *testing.T) {
	s := serve(t, ServerOptions{Address: "127.0.0.1:0"})
	closed := make(chan bool, 3*mostConnections)
	var all []net.Conn
	for i := range 3 * mostConnections {
		c, err := dial(s, i)
		if errors.Is(err, syscall.ECONNRESET) { // the server closed this connection, because it is above the rate limit
			closed <- true
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		all = append(all, c)
		go func() {
			_, err := c.Read(make([]byte, 1))
			closed <- err != nil
		}()
	}
	// The server closes these immediately; the time-out of the other connections is seconds away.
	for range 2 * mostConnections {
		<-closed
	}
	for _, c := range all {
		c.Close()
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A flood of connections from one address must not delay a scraper at another address.
func TestAFloodDoesNotStarveScrapers(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only the kernel of Linux blocks addresses")
	}
	s := serve(t, ServerOptions{Address: "127.0.0.1:0"})
	porttest.Flood(t, s.Address())
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	scraper := http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true},
		Timeout: answerTime}
	late := 0 // number of scrapes without an answer in time, on a busy machine
	for answers := 0; answers < 10; {
		begun := time.Now()
		r, err := scraper.Get("http://" + s.Address() + "/metrics")
		if err != nil && time.Since(begun) >= headerTime && late < 5 {
			late++
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != http.StatusOK {
			t.Fatalf("got status %d", r.StatusCode)
		}
		answers++
	}
}

// A scraper reads metrics over TLS with a token. The server must refuse plain HTTP.
func TestMetricsOverTLS(t *testing.T) {
	front := httptest.NewUnstartedServer(nil)
	front.StartTLS()
	defer front.Close()
	s := serve(t, ServerOptions{Address: "127.0.0.1:0", Token: "s3cr3t",
		TLS: &tls.Config{Certificates: front.TLS.Certificates}})
	if status, _ := answer(t, s, "GET", "/metrics", nil); status != 400 {
		t.Errorf("plain HTTP: got %d, want 400", status)
	}
	for _, c := range []struct {
		token string
		want  int
	}{{"Bearer s3cr3t", 200}, {"Bearer other", 401}} {
		r, err := http.NewRequest("GET", "https://"+s.Address()+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", c.token)
		resp, err := front.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		served := strings.Contains(string(body), "hetero_train_run_info")
		if err != nil || resp.StatusCode != c.want || served != (c.want == 200) {
			t.Errorf("%s: got %s, %v, want %d", c.token, resp.Status, err, c.want)
		}
	}
}
