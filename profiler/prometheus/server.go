package prometheus

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/hetero-train/hetero-train/engine/crowd"
	"github.com/hetero-train/hetero-train/profiler/httpguard"
)

// Limits of a server. A Prometheus server needs one connection.
const (
	mostConnections = 64
	mostScrapes     = 4
	mostHeaderBytes = 16 << 10
	headerTime      = 5 * time.Second  // time limit to receive a request
	answerTime      = 10 * time.Second // time limit to send a response; equal to the default time-out of a scrape
	idleTime        = 90 * time.Second // between two requests on a connection; scrapes are usually at most 60 s apart
)

// ErrExposed means that other machines could read the metrics without a token.
var ErrExposed = errors.New("other machines can reach this address, and there is no token")

// ServerOptions configure a server.
type ServerOptions struct {
	Address  string      // HOST:PORT; port 0: any free port
	Token    string      // secret that scrapers must send; "": none
	Insecure bool        // allow an address that other machines can reach, without a token
	TLS      *tls.Config // nil: plain HTTP
	Metrics  *Metrics
}

// Server serves metrics.
type Server struct {
	listener net.Listener
	http     *http.Server
	served   chan struct{} // closed when the server has stopped
}

// CheckAddress returns an error if the address is invalid, and ErrExposed if the server would need a token.
func (o *ServerOptions) CheckAddress() error {
	host, port, err := net.SplitHostPort(o.Address)
	if err != nil {
		return fmt.Errorf("got %q, want HOST:PORT, such as 127.0.0.1:9464", o.Address)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n > 65535 {
		return fmt.Errorf("got port %q, want a number from 0 to 65535", port)
	}
	if o.Token == "" && !o.Insecure && !isLoopback(host) {
		return fmt.Errorf("%s: %w", o.Address, ErrExposed)
	}
	return nil
}

// Listen starts a server. The caller closes it.
func Listen(o ServerOptions) (*Server, error) {
	if err := o.CheckAddress(); err != nil {
		return nil, err
	}
	l, err := crowd.Listen(o.Address)
	if err != nil {
		return nil, err
	}
	s := &Server{listener: l, served: make(chan struct{})}
	s.http = &http.Server{Handler: handler(&o), ReadHeaderTimeout: headerTime, ReadTimeout: headerTime,
		WriteTimeout: answerTime, IdleTimeout: idleTime,
		// no log, because clients must not be able to fill the log of the run
		MaxHeaderBytes: mostHeaderBytes, ErrorLog: log.New(io.Discard, "", 0)}
	limited := httpguard.Limit(s.http, httpguard.Paced(l), mostConnections)
	go func() {
		defer close(s.served)
		httpguard.Serve(s.http, limited, o.TLS) // returns after Close
	}()
	return s, nil
}

// Address returns the address with the actual port.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Close closes all connections. It does not wait for clients.
func (s *Server) Close() error {
	err := s.http.Close()
	<-s.served
	return err
}

// isLoopback reports whether only this machine reaches a host.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// handler answers GET /metrics.
func handler(o *ServerOptions) http.Handler {
	host, _, _ := net.SplitHostPort(o.Address) // CheckAddress has checked the address
	local := isLoopback(host)
	slots := make(chan struct{}, mostScrapes)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if o.Token != "" {
			if !httpguard.Equal(r.Header.Get("Authorization"), "Bearer "+o.Token) {
				w.Header().Set("WWW-Authenticate", `Bearer realm="hetero-train"`)
				http.Error(w, "the token is missing or wrong", http.StatusUnauthorized)
				return
			}
			httpguard.Prove(r) // only clients with the token: otherwise, every client could keep others out
		} else if local && !isLoopback(httpguard.Host(r.Host)) {
			// a web page in a browser on this machine, which uses DNS rebinding
			http.Error(w, "this server is for clients on this machine", http.StatusForbidden)
			return
		}
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		default:
			http.Error(w, "too many scrapes at the same time", http.StatusServiceUnavailable)
			return
		}
		w.Header().Del("Connection")
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		w.Write(o.Metrics.Text()) // an error means that the client is gone
	})
	// A refused client must not occupy one of the few connections.
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		mux.ServeHTTP(w, r)
	})
}
