package dashboard

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

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
	// pushInterval is the time between two looks at the files of a run if Options.Refresh is 0. Runs write their records
	// twice a second.
	pushInterval = 500 * time.Millisecond
)

// Options configure a Server.
type Options struct {
	Folder *runs.Folder

	Token    string        // secret that clients need; "": none
	Loopback bool          // only this machine reaches the server: its Host headers are loopback addresses or localhost
	Hosts    []string      // further names of the server in Host headers, without a port
	Refresh  time.Duration // time between two events of a stream; 0: as soon as a run changes
	Version  string        // of the program, for the page
	Log      *slog.Logger
}

// Server is the dashboard.
type Server struct {
	options Options
	handler http.Handler
	session string // value of the cookie of a client that knows the token
	logins  limiter
	begun   time.Time

	mu        sync.Mutex
	followers map[string]*follower
	answers   answers
	over      context.Context // canceled when the server ends
}

// New returns a server. It needs the user interface that is part of the program.
func New(o Options) (*Server, error) {
	files, err := readBundle()
	if err != nil {
		return nil, err
	}
	s := &Server{options: o, session: sessionOf(o.Token), begun: time.Now(), followers: map[string]*follower{}, over: context.Background()}
	mux := http.NewServeMux()
	for path, file := range files {
		mux.Handle("GET "+path, file)
	}
	mux.HandleFunc("GET /api/runs", s.list)
	mux.HandleFunc("GET /api/runs/{name}", s.view)
	mux.HandleFunc("GET /api/runs/{name}/figures", s.figures)
	mux.HandleFunc("GET /api/runs/{name}/config", s.config)
	mux.HandleFunc("GET /api/stream", s.stream)
	mux.HandleFunc("POST /login", s.login)
	s.handler = s.guard(mux)
	return s, nil
}

// ServeHTTP implements http.Handler, with all checks.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Serve answers requests until ctx is canceled. It closes the listener.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.over = ctx
	server := &http.Server{Handler: s, ReadHeaderTimeout: headerTime, ReadTimeout: readTime, IdleTimeout: idleTime, MaxHeaderBytes: mostHeaderBytes,
		ErrorLog: slog.NewLogLogger(s.options.Log.Handler(), slog.LevelDebug)}
	done := make(chan error, 1)
	go func() { done <- server.Serve(&limited{Listener: listener, free: make(chan struct{}, mostConnections)}) }()
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

// limited is a listener that closes connections beyond a number at once.
type limited struct {
	net.Listener
	free chan struct{}
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.free <- struct{}{}:
			return &counted{Conn: conn, release: sync.OnceFunc(func() { <-l.free })}, nil
		default:
			conn.Close() // the client sees the end of the connection and tries again later
		}
	}
}

// counted is a connection that counts until it is closed.
type counted struct {
	net.Conn
	release func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.release()
	return c.Conn.Close()
}
