package dashboard

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/profiler/runs"
)

const testToken = "0123456789abcdef0123"

// testFolder returns a folder with one run. Next to the folder is a file that no request may read.
func testFolder(t *testing.T) *runs.Folder {
	t.Helper()
	parent := t.TempDir()
	dir := filepath.Join(parent, "experiments", "a")
	record := recordText("2")
	err := errors.Join(os.MkdirAll(filepath.Join(dir, "logs"), 0o755),
		os.MkdirAll(filepath.Join(dir, "configs"), 0o755),
		os.WriteFile(filepath.Join(parent, "secret.txt"), []byte("the-secret"), 0o644),
		os.WriteFile(filepath.Join(dir, "logs", "rank_0_metrics.json"), []byte("[\n"+record+"\n]\n"), 0o644),
		os.WriteFile(filepath.Join(dir, "configs", "resolved.toml"), []byte("[model]\nname = \"m\"\n"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	folder, err := runs.OpenFolder(filepath.Join(parent, "experiments"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { folder.Close() })
	return folder
}

// start starts a server and returns its address.
func start(t *testing.T, o Options) string {
	t.Helper()
	return startLimited(t, o, mostConnections)
}

// startLimited starts a server that accepts a limited number of connections.
func startLimited(t *testing.T, o Options, places int) string {
	t.Helper()
	o.Folder, o.Log = testFolder(t), slog.New(slog.DiscardHandler)
	return serve(t, o, func(s *Server) { s.places = places })
}

// serve starts a server until the end of the test, and returns its address.
func serve(t *testing.T, o Options, change ...func(*Server)) string {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(s)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return listener.Addr().String()
}

// probe is a raw request, and the status that the server must return.
type probe struct {
	name    string
	line    string // "GET /path"
	headers []string
	body    string
	want    int
}

// send sends a request byte by byte as it is, because a client library would correct it.
func (p probe) send(t *testing.T, at string) (status int, header http.Header, body string) {
	t.Helper()
	conn, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	text := p.line + " HTTP/1.1\r\nConnection: close\r\n"
	if !slices.ContainsFunc(p.headers, func(h string) bool { return strings.HasPrefix(h, "Host:") }) {
		text += "Host: localhost:8501\r\n"
	}
	for _, h := range p.headers {
		text += h + "\r\n"
	}
	if p.body != "" {
		text += fmt.Sprintf("Content-Length: %d\r\nContent-Type: application/x-www-form-urlencoded\r\n", len(p.body))
	}
	if _, err := io.WriteString(conn, text+"\r\n"+p.body); err != nil {
		return 0, nil, "" // the server has closed the connection
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, nil, ""
	}
	defer answer.Body.Close()
	content, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, answer.Header, string(content)
}

// The probes of containers send no token. Requests from other sites must still be refused.
func TestHealthNeedsNoToken(t *testing.T) {
	at := start(t, Options{Token: testToken})
	for _, p := range []probe{{line: "GET " + HealthPath, want: 200}, {line: "HEAD " + HealthPath, want: 200},
		{line: "GET " + HealthPath + "/", want: 401}, {line: "POST " + HealthPath, want: 405},
		{line: "GET " + HealthPath, headers: []string{"Host: evil.example"}, want: 403}} {
		if status, _, text := p.send(t, at); status != p.want || status == 200 && strings.TrimSpace(text) != "ok" &&
			!strings.HasPrefix(p.line, "HEAD") {
			t.Errorf("%s %q: got %d %q, want %d", p.line, p.headers, status, text, p.want)
		}
	}
}

// attacks returns requests that the server must refuse, with and without a token.
func attacks() (all []probe) {
	add := func(name, line string, want int, headers ...string) {
		all = append(all, probe{name: name, line: line, want: want, headers: headers})
	}
	// These paths lead out of the folder, in several encodings.
	for _, path := range []string{"/../secret.txt", "/api/runs/../../secret.txt", "/api/runs/..", "/api/runs/../config",
		"/./", "//", "//etc/passwd", "/api//runs",
		"/%2e%2e/secret.txt", "/%2e%2e%2fsecret.txt", "/..%2fsecret.txt", "/..%2Fsecret.txt",
		"/%252e%252e%252fsecret.txt", "/..%255csecret.txt", "/..%5csecret.txt",
		"/api/runs/%2e%2e", "/api/runs/..%2f..%2fsecret.txt", "/api/runs/a%00", "/api/runs/a%2f..%2fa", "/api/runs/%61",
		"/api/runs/..%c0%af", "/api/runs/%c0%ae%c0%ae", "/app.js%00.html",
		"/api/runs/a;b", "/..;/secret.txt"} {
		add("path "+path, "GET "+path, 400)
	}
	for _, path := range []string{`/..\secret.txt`, `/api/runs/..\..\secret.txt`, `/api/runs/C:\`} {
		add("path "+path, "GET "+path, 400)
	}
	// These names of runs are invalid.
	for _, name := range []string{".lock", "-a", "a~", "a:b", "a@b", "a$b", "a'b", "a(b)", "a|b",
		strings.Repeat("a", 65), "...", "a+b", "a,b", "a!"} {
		add("run "+name, "GET /api/runs/"+name, 400)
		add("figures of "+name, "GET /api/runs/"+name+"/figures?columns=loss", 400)
	}
	add("stream of ..", "GET /api/stream?run=..%2F..%2Fsecret.txt", 400)
	add("stream without a run", "GET /api/stream", 400)
	add("stream of too many runs", "GET /api/stream?"+manyRuns(mostStreamed+1), 400)
	add("stream of invalid names", "GET /api/stream?run=.lock&run=-x", 400)
	// These are hosts and origins of other sites.
	for _, host := range []string{"evil.example", "evil.example:8501", "localhost.evil.example",
		"127.0.0.1.evil.example", "10.0.0.1", "169.254.169.254", "[fe80::1]:8501", "0.0.0.0:8501",
		"localhost@evil.example", ""} {
		add("host "+host, "GET /api/runs", -1, "Host: "+host)
	}
	for _, origin := range []string{"http://evil.example", "https://evil.example:8501", "null", "http://localhost:9999",
		"http://localhost", "file://", "http://localhost:8501.evil.example", "ftp://localhost:8501", "javascript:1"} {
		add("origin "+origin, "GET /api/runs", 403, "Origin: "+origin)
	}
	add("two origins", "GET /api/runs", 403, "Origin: http://localhost:8501", "Origin: http://evil.example")
	add("fetched by another site", "GET /api/runs", 403, "Sec-Fetch-Site: cross-site")
	add("fetched by a sibling site", "GET /api/stream?run=a", 403, "Sec-Fetch-Site: same-site")
	// The server accepts only GET.
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND"} {
		line := method + " /api/runs/a"
		want := 405
		if method == "CONNECT" {
			want = -1
		}
		add("method "+method, line, want)
	}
	all = append(all, probe{name: "login from another site", line: "POST /login",
		headers: []string{"Origin: http://evil.example"}, body: "token=" + testToken, want: 403},
		probe{name: "login with a large body", line: "POST /login", body: "token=" + strings.Repeat("x", 8<<10),
			want: 400},
		probe{name: "login with a wrong token", line: "POST /login", body: "token=wrong", want: 303},
		probe{name: "comparison from another site", line: "POST /api/compare",
			headers: []string{"Origin: http://evil.example"}, body: `["a"]`, want: 403},
		probe{name: "comparison of no list", line: "POST /api/compare", body: `{"a":1}`, want: 400},
		probe{name: "comparison with a large body", line: "POST /api/compare",
			body: `["` + strings.Repeat("x", mostNamesBytes) + `"]`, want: 400})
	// These requests would need much memory.
	add("long header", "GET /", 431, "X: "+strings.Repeat("x", 32<<10))
	add("long path", "GET /"+strings.Repeat("x", 32<<10), 431)
	add("many headers", "GET /", 431, strings.Split(strings.TrimSuffix(strings.Repeat("X: 1234567890\n", 3000), "\n"),
		"\n")...)
	for _, query := range []string{"", "?columns=nonsense", "?columns=loss&columns=own", "?columns=loss,own,loss",
		"?columns=own&ranks=0,0", "?columns=loss&x=1", "?columns=loss&from=-1", "?columns=loss&points=abc",
		"?columns=loss&ranks=99999", "?columns=own&ranks=1",
		"?columns=loss&to=99999999999999999999", "?columns=" + strings.Repeat("loss,", 50)} {
		add("query "+query, "GET /api/runs/a/figures"+query, 400)
	}
	for _, path := range []string{"/missing", "/api", "/api/", "/api/runs/b", "/api/runs/a/", "/api/runs/a/logs",
		"/bundle/app.js.gz", "/app.js.gz", "/ui/bundle/app.js", "/index.html", "/.git/config", "/debug/pprof/",
		"/metrics"} {
		add("unknown "+path, "GET "+path, 404)
	}
	return all
}

// The status -1 means any status of at least 400, or a closed connection.
func TestAttacksAreRefused(t *testing.T) {
	open := start(t, Options{Loopback: true})
	closed := start(t, Options{Loopback: true, Token: testToken})
	all := attacks()
	t.Logf("%d probes", len(all))
	if len(all) < 60 {
		t.Errorf("got %d probes, want at least 60", len(all))
	}
	for _, p := range all {
		status, header, body := p.send(t, open)
		// The server waits 0.5 s before it closes a connection with unread headers. If the test gets no CPU within this
		// time, it loses the answer and tries again.
		for again := 0; p.want > 0 && status == 0 && again < 5; again++ {
			status, header, body = p.send(t, open)
		}
		if p.want > 0 && status != p.want || p.want < 0 && status < 400 && status != 0 {
			t.Errorf("%s: got status %d, want %d: %.80s", p.name, status, p.want, body)
		}
		if strings.Contains(body, "the-secret") || strings.Contains(header.Get("Location"), "//") {
			t.Errorf("%s: got the content of another file, or a redirect to another server", p.name)
		}
		if header != nil && status != 431 && status != 400 && header.Get("Content-Security-Policy") != policy &&
			p.want > 0 {
			t.Errorf("%s: status %d: got policy %q", p.name, status, header.Get("Content-Security-Policy"))
		}
		if status, _, _ := p.send(t, closed); status >= 200 && status < 300 {
			t.Errorf("%s: with a token: got status %d, want an error", p.name, status)
		}
	}
}

func TestDataNeedTheToken(t *testing.T) {
	at := start(t, Options{Loopback: true, Token: testToken})
	for _, path := range []string{"/api/runs", "/api/runs/a", "/api/runs/a/config", "/api/runs/a/figures?columns=loss",
		"/api/stream?run=a", "/app.js"} {
		if status, _, _ := (probe{line: "GET " + path}).send(t, at); status != 401 {
			t.Errorf("%s without the token: got %d, want 401", path, status)
		}
		if status, _, _ := (probe{line: "GET " + path + "&token=" + testToken}).send(t, at); status < 400 {
			t.Errorf("%s with the token in the address: got %d, want an error", path, status)
		}
	}
	if status, h, _ := (probe{line: "GET /"}).send(t, at); status != 303 || h.Get("Location") != "login.html" {
		t.Errorf("the page without the token: got %d to %q, want the form", status, h.Get("Location"))
	}
	status, h, _ := (probe{line: "POST /login", headers: []string{"Origin: http://localhost:8501"},
		body: "token=" + url.QueryEscape(testToken)}).send(t, at)
	cookie := h.Get("Set-Cookie")
	if status != 303 || h.Get("Location") != "./" || !strings.Contains(cookie, "HttpOnly") ||
		!strings.Contains(cookie, "SameSite=Strict") || strings.Contains(cookie, "Path") ||
		strings.Contains(cookie, testToken) {
		t.Fatalf("login: got %d to %q with cookie %q", status, h.Get("Location"), cookie)
	}
	value, _, _ := strings.Cut(cookie, ";")
	for header, want := range map[string]int{"Cookie: " + value: 200, "Cookie: " + value + "0": 401,
		"Cookie: " + cookieName + "=":        401,
		"Authorization: Bearer " + testToken: 200, "Authorization: Bearer " + testToken + "0": 401,
		"Authorization: Basic " + testToken: 401} {
		if status, _, _ := (probe{line: "GET /api/runs", headers: []string{header}}).send(t, at); status != want {
			t.Errorf("%s: got %d, want %d", header, status, want)
		}
	}
	// Strangers guess tokens. This must not block clients with the token, even from the same address.
	last := 0
	for range 20 {
		last, _, _ = (probe{line: "POST /login", body: "token=guess"}).send(t, at)
		(probe{line: "GET /api/runs", headers: []string{"Authorization: Bearer guess"}}).send(t, at)
	}
	if last != 429 {
		t.Errorf("after many wrong tokens: got %d, want 429", last)
	}
	if status, h, _ := (probe{line: "POST /login", body: "token=" + testToken}).send(t, at); status != 303 ||
		h.Get("Location") != "./" {
		t.Errorf("the right token after many wrong ones: got %d to %q, want the page", status, h.Get("Location"))
	}
	if status, _, _ := (probe{line: "GET /api/runs", headers: []string{"Authorization: Bearer " + testToken}}).send(t,
		at); status != 200 {
		t.Errorf("the right token in a header after many wrong ones: got %d, want 200", status)
	}
}

// Strangers hold more connections than the server accepts. A client with the token must still get an answer.
func TestHeldConnectionsDoNotKeepOutAClient(t *testing.T) {
	at := startLimited(t, Options{Loopback: true, Token: testToken}, 20)
	for range 100 {
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	for range 3 {
		if status, _, _ := (probe{line: "GET /api/runs", headers: []string{"Authorization: Bearer " + testToken}}).send(
			t, at); status != 200 {
			t.Errorf("got %d, want 200", status)
		}
	}
}

func TestNamesOfAServerThatOthersReach(t *testing.T) {
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	at := start(t, Options{Token: testToken, Hosts: []string{"board.example"}})
	for host, want := range map[string]int{"10.1.2.3:8501": 200, "[2001:db8::1]:8501": 200, own: 200,
		"board.example": 200, "BOARD.example:80": 200, "localhost": 200, "evil.example": 403, "": 403} {
		p := probe{line: "GET /api/runs", headers: []string{"Host: " + host, "Authorization: Bearer " + testToken}}
		if status, _, _ := p.send(t, at); status != want && !(host == "" && status >= 400) {
			t.Errorf("host %q: got %d, want %d", host, status, want)
		}
	}
}

func TestThePageLoadsOnlyItsOwnFiles(t *testing.T) {
	s, err := New(Options{Folder: testFolder(t), Loopback: true})
	if err != nil {
		t.Fatal(err)
	}
	for path, kind := range map[string]string{"/": "text/html", "/app.js": "text/javascript", "/app.css": "text/css",
		"/icon.svg": "image/svg+xml", "/login.html": "text/html"} {
		for _, encoding := range []string{"", "gzip"} {
			r := httptest.NewRequest("GET", "http://localhost"+path, nil)
			r.Header.Set("Accept-Encoding", encoding)
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), kind) ||
				w.Header().Get("Content-Encoding") != encoding {
				t.Errorf("%s (%q): got %d, %s, %q", path, encoding, w.Code, w.Header().Get("Content-Type"),
					w.Header().Get("Content-Encoding"))
			}
			if text := w.Body.String(); encoding == "" && kind == "text/html" {
				for _, forbidden := range []string{"http://", "https://", "<script>", "style=", "onload", "onclick"} {
					if strings.Contains(text, forbidden) {
						t.Errorf("%s contains %q", path, forbidden)
					}
				}
			}
		}
	}
}

// manyRuns returns a query that names n runs.
func manyRuns(n int) string {
	q := url.Values{}
	for i := range n {
		q.Add("run", fmt.Sprint("run", i))
	}
	return q.Encode()
}
