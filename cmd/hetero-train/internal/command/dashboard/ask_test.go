package dashboard

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/profiler/dashboard"
)

// Another server at the port must not count as healthy. A server with other flags must not either.
func TestCheckAcceptsOnlyADashboard(t *testing.T) {
	healthy := http.NewServeMux()
	healthy.HandleFunc(dashboard.HealthPath, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	redirect := http.NewServeMux()
	redirect.HandleFunc(dashboard.HealthPath, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/ok", http.StatusFound)
	})
	redirect.HandleFunc("/ok", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	foreign := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok, says a file server") })
	refusing := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "ok", http.StatusServiceUnavailable)
	})
	for _, c := range []struct {
		name    string
		handler http.Handler
		serves  bool // the server speaks HTTPS
		asks    bool // the flags of --check include --cert-file
		want    string
	}{
		{"HTTP", healthy, false, false, ""},
		{"HTTPS", healthy, true, true, ""},
		{"HTTPS without --cert-file", healthy, true, false, "--cert-file"},
		{"HTTP with --cert-file", healthy, false, true, "no dashboard answers"},
		{"redirect", redirect, false, false, "got 302 Found"},
		{"another server", foreign, false, false, `got 200 OK and "ok, "`},
		{"error", refusing, false, false, "got 503"},
	} {
		server := httptest.NewUnstartedServer(c.handler)
		if c.serves {
			server.StartTLS()
		} else {
			server.Start()
		}
		host, port, err := net.SplitHostPort(server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		cfg := new(config.Config)
		cfg.Dashboard.Address = host
		if cfg.Dashboard.Port, err = strconv.Atoi(port); err != nil {
			t.Fatal(err)
		}
		if c.asks {
			cfg.Dashboard.CertFile = "node.pem" // only the server reads the certificate
		}
		err = ask(t.Context(), cfg)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
		server.Close()
	}
}
