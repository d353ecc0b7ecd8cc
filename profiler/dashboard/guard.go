package dashboard

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/profiler/httpguard"
)

// policy is the content security policy. uPlot sets styles of elements by script, which this policy permits.
const policy = "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

const cookieName = "hetero_dashboard"

// HealthPath is the path that health probes of containers request. The response contains nothing about the runs, so it
// needs no token.
const HealthPath = "/healthz"

// below removes the base path from requests if the proxy has not removed it. Requests without the base path stay as
// they are, so that another proxy or a tunnel can also be used.
func (s *Server) below(next http.Handler) http.Handler {
	base := strings.TrimSuffix(s.options.BasePath, "/")
	if base == "" {
		return next
	}
	want, err := url.PathUnescape(base)
	if err != nil {
		want = base
	}
	parts := strings.Count(base, "/") + 1
	withSlash := s.guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		redirect(w, "./"+path.Base(base)+"/")
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Proxies escape different characters, such as "@". The rest of the path must stay escaped, so that guard
		// refuses the same requests as without a base path.
		head := strings.SplitAfterN(r.URL.EscapedPath(), "/", parts+1)
		rest := ""
		if len(head) > parts {
			rest = head[parts]
		}
		got, err := url.PathUnescape(strings.TrimSuffix(strings.Join(head[:min(parts, len(head))], ""), "/"))
		switch {
		case err != nil || got != want:
			next.ServeHTTP(w, r)
		case len(head) == parts: // without the slash, relative addresses in the page would start one folder higher
			withSlash.ServeHTTP(w, r)
		default:
			inner := r.Clone(r.Context())
			inner.URL.RawPath = "/" + rest
			if inner.URL.Path, err = url.PathUnescape(inner.URL.RawPath); err != nil {
				http.Error(w, "the path has characters that are not allowed", http.StatusBadRequest)
				return
			}
			next.ServeHTTP(w, inner)
		}
	})
}

// guard refuses requests that do not come from a page of this server, and adds headers to all responses.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(to http.ResponseWriter, r *http.Request) {
		w := &timed{ResponseWriter: to, limit: s.writeTime}
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		// with "no-referrer", browsers send the form of /login with "Origin: null"
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		switch {
		case !plainPath(r):
			http.Error(w, "the path has characters that are not allowed", http.StatusBadRequest)
		case !s.isOwnName(r.Host):
			http.Error(w, "unknown host name in the request; if it is a name of this server, add it to dashboard.hosts",
				http.StatusForbidden)
		case !s.sameOrigin(r):
			http.Error(w, "the request is from a page of another server", http.StatusForbidden)
		case r.Method != http.MethodGet && r.Method != http.MethodHead &&
			(r.Method != http.MethodPost || !isForm(r.URL.Path)):
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD are allowed, because the dashboard only reads",
				http.StatusMethodNotAllowed)
		case r.URL.Path == HealthPath:
			fmt.Fprintln(w, "ok")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// authorize refuses requests of clients that need the token and have not sent it.
func (s *Server) authorize(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if may, wrong := s.mayRead(r); may {
			next.ServeHTTP(w, r)
		} else if !wrong || !s.refusesWrong(w, r) {
			s.askToken(w, r)
		}
	})
}

// timed limits the time within which a client must accept a response. The time begins with the first byte, so it does
// not include the time in which the server computes the response.
type timed struct {
	http.ResponseWriter
	limit time.Duration
	begun bool
}

// Unwrap returns the writer for http.ResponseController.
func (t *timed) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (t *timed) WriteHeader(status int) {
	t.begin()
	t.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (t *timed) Write(b []byte) (int, error) {
	t.begin()
	return t.ResponseWriter.Write(b)
}

func (t *timed) begin() {
	if !t.begun {
		t.begun = true
		// fails only in tests
		_ = http.NewResponseController(t.ResponseWriter).SetWriteDeadline(time.Now().Add(t.limit))
	}
}

// isForm reports whether requests with a body (POST) are allowed for a path. The server stores nothing for such a
// request.
func isForm(path string) bool { return path == "/login" || path == "/api/compare" }

// plainPath reports whether a path contains no escaped characters and no empty or relative parts.
func plainPath(r *http.Request) bool {
	path := r.URL.EscapedPath()
	if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, "%\\;") || strings.Contains(path, "//") {
		return false
	}
	return !slices.ContainsFunc(strings.Split(path, "/"), func(part string) bool { return part == "." || part == ".." })
}

// isOwnName reports whether a Host header names this server. In DNS rebinding, the header contains the name of a
// foreign site. Numeric addresses are safe, because they cannot be rebound.
func (s *Server) isOwnName(hostport string) bool {
	host := strings.ToLower(strings.TrimSuffix(httpguard.Host(hostport), "."))
	if host == "localhost" || s.isListed(host) {
		return true
	}
	ip := net.ParseIP(host)
	if s.options.Loopback {
		return ip != nil && ip.IsLoopback()
	}
	own, err := os.Hostname()
	return ip != nil || err == nil && host != "" && strings.EqualFold(own, host)
}

// isListed reports whether dashboard.hosts names a host.
func (s *Server) isListed(host string) bool {
	return slices.ContainsFunc(s.options.Hosts, func(name string) bool { return strings.EqualFold(name, host) })
}

// sameOrigin reports whether a request comes from a page of this server, or from no page. Some proxies replace the Host
// header by the address of this server. The origin must then have one of the names in dashboard.hosts.
func (s *Server) sameOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); (site == "cross-site" || site == "same-site") &&
		!(r.Method == http.MethodGet && r.URL.Path == "/") {
		return false
	}
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return true
	}
	u, err := url.Parse(origins[0])
	return err == nil && len(origins) == 1 && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" &&
		(strings.EqualFold(u.Host, r.Host) || s.isListed(u.Hostname()))
}

// isEncrypted reports whether a browser has sent a request with TLS, to this server or to a proxy. It relies on the
// Origin header, which the browser sets and guard has checked. A client that states a wrong origin harms only itself:
// it gets a cookie that its browser does not send.
func isEncrypted(r *http.Request) bool {
	return r.TLS != nil || strings.HasPrefix(r.Header.Get("Origin"), "https:")
}

// mayRead reports whether the client has sent the token, or needs none. wrong means that the client has sent a wrong
// token.
func (s *Server) mayRead(r *http.Request) (may, wrong bool) {
	if s.options.Token == "" { // every client passes without Prove, so that new connections can replace old ones
		return true, false
	}
	if r.URL.Path == "/login" || isPublic(r.URL.Path) {
		return true, false
	}
	if c, err := r.Cookie(cookieName); err == nil && httpguard.Equal(c.Value, s.session) {
		httpguard.Prove(r)
		return true, false
	}
	bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if ok && httpguard.Equal(bearer, s.options.Token) {
		httpguard.Prove(r)
		return true, false
	}
	return false, ok
}

// refusesWrong counts a wrong token. It answers the request and returns true if the client's address has sent too many
// wrong tokens.
func (s *Server) refusesWrong(w http.ResponseWriter, r *http.Request) bool {
	from, over, first := s.wrong.Wrong(r)
	if first {
		s.options.Log.Warn("many wrong tokens", "from", from)
	}
	if over {
		w.Header().Set("Retry-After", "10")
		http.Error(w, "too many wrong tokens from your address: use the token that the dashboard was started with",
			http.StatusTooManyRequests)
	}
	return over
}

// askToken responds to a client without the token. A request for the page is redirected to the login form; all other
// requests get an error.
func (s *Server) askToken(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/" {
		redirect(w, "login.html")
		return
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	http.Error(w, "the token of the dashboard is missing or wrong", http.StatusUnauthorized)
}

// redirect sends the browser to a page. The address is relative, because a proxy may serve the dashboard below a path.
func redirect(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// isPublic reports whether a path is served without the token. Such paths are the login form and its style, which
// contain no data of runs.
func isPublic(path string) bool {
	return path == "/login.html" || path == "/app.css" || path == "/icon.svg"
}

// login sets the cookie of a client that sends the token.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 4<<10)
	if err := r.ParseForm(); err != nil {
		http.Error(w, "the form cannot be read", http.StatusBadRequest)
		return
	}
	if s.options.Token == "" || !httpguard.Equal(strings.TrimSpace(r.PostForm.Get("token")), s.options.Token) {
		if !s.refusesWrong(w, r) {
			redirect(w, "login.html#wrong")
		}
		return
	}
	httpguard.Prove(r)
	// The cookie has no path, so browsers send it only to the folder of this request. Other programs behind the same
	// proxy do not get it, and other dashboards do not replace it.
	http.SetCookie(w, &http.Cookie{Name: cookieName, Value: s.session, HttpOnly: true,
		SameSite: http.SameSiteStrictMode, Secure: isEncrypted(r)})
	redirect(w, "./")
}

// sessionOf derives the value of the cookie from the token, so that browsers do not store the token itself.
func sessionOf(token string) string {
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte("hetero-train dashboard session"))
	return hex.EncodeToString(mac.Sum(nil))
}
