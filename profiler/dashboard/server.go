package dashboard

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/profiler/httpguard"
	"github.com/hetero-train/hetero-train/profiler/runs"
)

// Limits of the server.
const (
	mostHeaderBytes = 16 << 10
	mostConnections = 6000
	headerTime      = 5 * time.Second
	readTime        = 10 * time.Second
	idleTime        = 60 * time.Second
	// writeTime is the time within which a client must accept an answer, or an event of a stream.
	writeTime = 10 * time.Second
	// pushInterval is the time between two checks of a run's files if Options.Refresh is 0. Runs write records twice
	// a second.
	pushInterval = 500 * time.Millisecond
	// retryTime is the time between two attempts of a stream to follow a run that the server refuses.
	retryTime = 5 * time.Second
)

// Options configures a Server.
type Options struct {
	Folder *runs.Folder

	Token string // secret that clients must send; "": no token
	// only this machine can reach the server; Host headers must then be loopback addresses or localhost
	Loopback bool
	Hosts    []string      // further names of the server in Host and Origin headers, without ports
	BasePath string        // escaped path that a proxy leaves in the requests; "" or "/": none
	TLS      *tls.Config   // nil: plain HTTP
	Refresh  time.Duration // time between two events of a stream; 0: at each change of the run
	Version  string        // version of the program, which the page shows
	// soft memory limit of the process while Serve runs, without the memory of connections, in bytes; 0: unchanged
	Memory int64
	Log    *slog.Logger // nil: no log
}

// Server serves the web page and its data.
type Server struct {
	options Options
	handler http.Handler
	session string            // value of the cookie for clients that have sent the token
	wrong   httpguard.Limiter // counts wrong tokens
	begun   time.Time

	writeTime, retryTime, graceTime time.Duration // the constants of these names, except in tests
	places                          int           // mostConnections, except in tests

	mu        sync.Mutex
	followers map[string]*follower
	visits    chan struct{} // has an element for each run that is open for one request
	answers   answers
	trials    trials
	unindexed sync.Once       // logs the first index that cannot be written
	over      context.Context // canceled when the server ends
}

// New returns a server. It fails if the program does not contain the user interface.
func New(o Options) (*Server, error) {
	files, err := readBundle()
	if err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{options: o, session: sessionOf(o.Token), begun: time.Now(), writeTime: writeTime, retryTime: retryTime,
		graceTime: graceTime, places: mostConnections, followers: map[string]*follower{},
		visits: make(chan struct{}, mostVisits), trials: trials{reading: make(chan struct{}, 1)},
		over: context.Background()}
	mux := http.NewServeMux()
	for path, file := range files {
		mux.Handle("GET "+path, file)
	}
	mux.HandleFunc("GET /api/runs", s.list)
	mux.HandleFunc("GET /api/runs/{name}", s.view)
	mux.HandleFunc("GET /api/runs/{name}/figures", s.figures)
	mux.HandleFunc("GET /api/runs/{name}/config", s.config)
	mux.HandleFunc("POST /api/compare", s.compare)
	mux.HandleFunc("GET /api/stream", s.stream)
	mux.HandleFunc("POST /login", s.login)
	s.handler = s.below(s.guard(s.authorize(mux)))
	return s, nil
}

// ServeHTTP implements http.Handler and includes all checks.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Serve serves requests until ctx is canceled. It closes the listener.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.over = ctx
	server := &http.Server{Handler: s, ReadHeaderTimeout: headerTime, ReadTimeout: readTime, IdleTimeout: idleTime,
		MaxHeaderBytes: mostHeaderBytes,
		ErrorLog:       slog.NewLogLogger(s.options.Log.Handler(), slog.LevelDebug)}
	if s.options.Memory > 0 {
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
		limit := &memory{base: s.options.Memory, each: connectionBytes}
		if s.options.TLS != nil {
			limit.each = tlsConnectionBytes
		}
		limit.set()
		server.ConnState = limit.track
	}
	limited := httpguard.Limit(server, listener, s.places)
	done := make(chan error, 1)
	go func() { done <- httpguard.Serve(server, limited, s.options.TLS) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	err := server.Close() // also ends streams
	if served := <-done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	s.closeFollowers()
	return err
}
