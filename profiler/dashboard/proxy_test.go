package dashboard

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// proxied starts a proxy with TLS in front of a server. It returns a client, and the address of the page. The proxy
// serves the page below prefix, which ends with a slash.
func proxied(t *testing.T, at, prefix string, strips, keepsHost bool) (*http.Client, *url.URL) {
	t.Helper()
	server := &url.URL{Scheme: "http", Host: at}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(server)
		r.SetXForwarded()
		if keepsHost {
			r.Out.Host = r.In.Host
		}
		if strips {
			r.Out.URL.RawPath = strings.Replace(r.Out.URL.EscapedPath(), prefix, "/", 1)
			r.Out.URL.Path, _ = url.PathUnescape(r.Out.URL.RawPath)
		}
	}}
	front := httptest.NewTLSServer(proxy)
	t.Cleanup(front.Close)
	client := front.Client()
	// The certificate of httptest is valid for example.com.
	client.Transport.(*http.Transport).DialContext = dialer(front.Listener.Addr().String())
	client.Jar, _ = cookiejar.New(nil) // cookiejar.New never fails
	return client, &url.URL{Scheme: "https", Host: "example.com", Path: decoded(prefix), RawPath: prefix}
}

// dialer returns a function that connects to one address for every name.
func dialer(at string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, at)
	}
}

func decoded(path string) string {
	text, err := url.PathUnescape(path)
	if err != nil {
		panic(err)
	}
	return text
}

var linked = regexp.MustCompile(`(?:href|src|action)="([^"]*)"`)

// The page, its files, the login, the data and the events must work below a path of a proxy with TLS. The test sends
// the requests of a browser.
func TestThePageWorksBehindAProxy(t *testing.T) {
	for _, c := range []struct {
		name, prefix, base string
		strips, keepsHost  bool
	}{
		{"the root", "/", "", false, true},
		{"a path that the proxy removes", "/user/me/proxy/8501/", "", true, true},
		{"a path that the proxy leaves", "/user/me/proxy/8501/", "/user/me/proxy/8501/", false, true},
		{"a base path that the proxy removes", "/board/", "/board", true, true},
		{"the host of the server", "/board/", "/board", false, false},
		{"an escaped path", "/user/me%40example.com/proxy/8501/", "/user/me@example.com/proxy/8501", false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Options{Token: testToken, Loopback: true, Hosts: []string{"example.com"}, BasePath: c.base}
			client, page := proxied(t, start(t, o), c.prefix, c.strips, c.keepsHost)
			get := func(path string) (int, string, *http.Response) {
				t.Helper()
				resp, err := client.Get(page.ResolveReference(&url.URL{Path: path}).String())
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				text, err := io.ReadAll(resp.Body)
				if err != nil {
					t.Fatal(err)
				}
				return resp.StatusCode, string(text), resp
			}
			status, text, resp := get("")
			if want := c.prefix + "login.html"; status != 200 || resp.Request.URL.EscapedPath() != want {
				t.Fatalf("without the token: got %d at %s, want the form at %s", status, resp.Request.URL.EscapedPath(),
					want)
			}
			if !strings.Contains(text, `action="login"`) && !strings.Contains(text, `action="./login"`) {
				t.Errorf("the form has another address: %s", text)
			}
			r, err := http.NewRequest("POST", page.ResolveReference(&url.URL{Path: "login"}).String(),
				strings.NewReader("token="+testToken))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Origin", "https://example.com")
			resp, err = client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != 200 || resp.Request.URL.EscapedPath() != c.prefix {
				t.Fatalf("login: got %d at %s, want the page at %s", resp.StatusCode, resp.Request.URL, c.prefix)
			}
			if resp = resp.Request.Response; !strings.Contains(resp.Header.Get("Set-Cookie"), "; Secure") {
				t.Errorf("login: got the cookie %q, want Secure", resp.Header.Get("Set-Cookie"))
			}
			other := client.Jar.Cookies(&url.URL{Scheme: "https", Host: "example.com", Path: "/other/"})
			if c.prefix != "/" && len(other) > 0 {
				t.Errorf("another program behind the proxy gets the cookie: %v", other)
			}
			_, text, _ = get("")
			links := linked.FindAllStringSubmatch(text, -1)
			if len(links) < 2 {
				t.Fatalf("got the links %q in the page, want its script and its style", links)
			}
			for _, link := range links {
				if status, _, _ := get(link[1]); strings.HasPrefix(link[1], "/") || status != 200 {
					t.Errorf("link %q of the page: got %d, want 200 and a relative address", link[1], status)
				}
			}
			for _, path := range []string{"stream.js", "api/runs", "api/runs/a", "api/runs/a/config"} {
				if status, _, _ := get(path); status != 200 {
					t.Errorf("%s: got %d, want 200", path, status)
				}
			}
			if resp, err = client.Get(page.ResolveReference(&url.URL{Path: "api/stream",
				RawQuery: "run=a"}).String()); err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			for lines := bufio.NewScanner(resp.Body); ; {
				if !lines.Scan() {
					t.Fatalf("the stream ended with status %d before its first event: %v", resp.StatusCode, lines.Err())
				}
				if strings.HasPrefix(lines.Text(), "event: version") {
					break
				}
			}
		})
	}
}

// A base path must not allow requests to bypass the checks of paths. The base path without its slash must lead to the
// page.
func TestPathsBelowABasePath(t *testing.T) {
	at := start(t, Options{Loopback: true, BasePath: "/user/me/proxy/8501"})
	for path, want := range map[string]int{
		"/user/me/proxy/8501/": 200, "/user/me/proxy/8501/api/runs": 200, "/": 200, "/api/runs": 200,
		"/user/%6de/proxy/8501/api/runs":            200,
		"/user/me/proxy/8501":                       303,
		"/user/me/proxy/8502/api/runs":              404,
		"/user/me/proxy/85010/":                     404,
		"/user/me/proxy/8501//api/runs":             400,
		"/user/me/proxy/8501/../secret.txt":         400,
		"/user/me/proxy/8501/api/runs/%61":          400,
		"/user/me/proxy/8501/%2e%2e/secret.txt":     400,
		"/user%2fme/proxy/8501/api/runs":            400,
		"/user/me/proxy/8501/user/me/proxy/8501/":   404,
		"/user/me/proxy/8501/api/runs/..%2fsecrets": 400,
	} {
		status, h, body := (probe{line: "GET " + path}).send(t, at)
		if status != want || strings.Contains(body, "the-secret") {
			t.Errorf("%s: got %d, want %d: %.80s", path, status, want, body)
		}
		if want == 303 && h.Get("Location") != "./8501/" {
			t.Errorf("%s: got a redirect to %q, want ./8501/", path, h.Get("Location"))
		}
	}
	for _, p := range []probe{
		{name: "another host", line: "GET /user/me/proxy/8501", headers: []string{"Host: evil.example"}, want: 403},
		{name: "another method", line: "DELETE /user/me/proxy/8501", want: 405},
	} {
		status, h, _ := p.send(t, at)
		if status != p.want || h.Get("Content-Security-Policy") == "" {
			t.Errorf("the base path without the slash, %s: got %d with headers %v, want %d", p.name, status, h, p.want)
		}
	}
	if status, _, _ := (probe{line: "POST /user/me/proxy/8501/api/compare", body: `["a"]`,
		headers: []string{"Origin: http://evil.example"}}).send(t, at); status != 403 {
		t.Errorf("comparison from another site: got %d, want 403", status)
	}
}

// With a certificate, the server itself must serve HTTPS, with the same limits of connections. It must refuse plain
// HTTP.
func TestHTTPS(t *testing.T) {
	front := httptest.NewUnstartedServer(nil)
	front.StartTLS()
	defer front.Close()
	o := Options{Token: testToken, Loopback: true, Hosts: []string{"example.com"},
		TLS: &tls.Config{Certificates: front.TLS.Certificates}}
	at := startLimited(t, o, 4)
	if status, _, body := (probe{line: "GET /api/runs"}).send(t, at); status != 400 {
		t.Errorf("plain HTTP: got %d, want 400: %s", status, body)
	}
	for range 8 { // these strangers never start TLS
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	client := front.Client()
	client.Transport.(*http.Transport).DialContext = dialer(at)
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	r, err := http.NewRequest("GET", "https://example.com/api/runs", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+testToken)
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 || resp.ProtoMajor != 1 {
		t.Errorf("got %s with %s, want 200 with HTTP/1.1", resp.Status, resp.Proto)
	}
	resp, err = client.PostForm("https://example.com/login", url.Values{"token": {testToken}})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if cookie := resp.Header.Get("Set-Cookie"); !strings.Contains(cookie, "; Secure") {
		t.Errorf("got the cookie %q, want Secure", cookie)
	}
}
