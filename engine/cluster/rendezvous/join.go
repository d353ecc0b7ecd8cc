package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/hetero-train/hetero-train/engine/handshake"
)

// MaxValue is the maximum length of a value for Set and Gather, in bytes.
const MaxValue = maxValue

// Defaults of Options.
const (
	DefaultTimeout          = 5 * time.Minute
	DefaultHeartbeatTimeout = 5 * time.Second
)

// Options describe this rank and the group that it joins.
type Options struct {
	Rank, WorldSize int
	LocalRank       int    // -1: unknown; Join then numbers the ranks of each host
	Address         string // host:port of rank 0
	// Alternatives are further addresses, the same on every rank. Rank 0 listens on the first free address of Address
	// and Alternatives. The other ranks try all of these addresses, and skip a listener that is not rank 0 of their
	// Generation.
	Alternatives []string
	Generation   uint64 // identifies this start of the run; the same on all of its ranks

	Host     string // id of this rank's machine; "": HostID()
	Endpoint string // address at which other ranks reach this rank; Members returns it unchanged
	Facts    []Fact // values that must be the same on every rank

	Token    Token
	Insecure bool // rank 0 may listen beyond loopback without a token
	// Certificates, if not nil, identify the machines in addition to the token. Either all ranks have certificates, or
	// none has.
	Certificates *handshake.Certificates

	Timeout          time.Duration // time for all ranks to join; 0: DefaultTimeout
	HeartbeatTimeout time.Duration // maximum silence of a rank, the same on every rank; 0: DefaultHeartbeatTimeout

	// Status returns a description of this rank's activity, for Survey. Any goroutine may call it.
	Status func() string

	Log *slog.Logger // nil: no log

	// Listener, if not nil, is the socket on which rank 0 listens instead of Address. If Join fails on rank 0, Join
	// closes Listener. Otherwise rank 0 closes it when the group ends.
	Listener net.Listener
	// Dial, if not nil, connects this rank to rank 0 at address, instead of a TCP dialer.
	Dial func(ctx context.Context, address string) (net.Conn, error)
}

// Join adds this rank to the group and returns when all ranks have joined. Every rank of the run must call it once. The
// package comment lists its errors; Join may also return the error of ctx.
func Join(ctx context.Context, options Options) (*Group, error) {
	if err := options.complete(); err != nil {
		if options.Listener != nil {
			_ = options.Listener.Close()
		}
		return nil, err
	}
	limited, cancel := context.WithTimeoutCause(ctx, options.Timeout, errTimeout)
	defer cancel()
	if options.Rank == 0 {
		return host(limited, options)
	}
	return visitRank0(limited, options)
}

var errTimeout = errors.New("time-out")

// complete sets defaults and checks the other options.
func (o *Options) complete() error {
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.HeartbeatTimeout == 0 {
		o.HeartbeatTimeout = DefaultHeartbeatTimeout
	}
	if o.Host == "" {
		o.Host = HostID()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Dial == nil {
		o.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			dialer := net.Dialer{Timeout: handshakeTime}
			return dialer.DialContext(ctx, "tcp", address)
		}
	}
	var faults []error
	if o.WorldSize < 1 || o.Rank < 0 || o.Rank >= o.WorldSize {
		faults = append(faults,
			fmt.Errorf("got rank %d and world size %d, want a rank of at least 0, below the world size", o.Rank,
				o.WorldSize))
	}
	if o.Timeout < 0 || o.HeartbeatTimeout < 0 {
		faults = append(faults, fmt.Errorf("got time-outs of %v and %v, want positive time-outs", o.Timeout,
			o.HeartbeatTimeout))
	}
	if len(o.Host) > maxText || len(o.Endpoint) > maxText || len(o.Facts) > maxFacts {
		faults = append(faults,
			fmt.Errorf("got a host of %d bytes, an endpoint of %d bytes and %d facts, want at most %d bytes, %d bytes and %d facts",
				len(o.Host), len(o.Endpoint), len(o.Facts), maxText, maxText, maxFacts))
	}
	if err := o.Token.Check(); err != nil {
		faults = append(faults, err)
	}
	if n := len(o.registration().encode()); n >= maxFrame {
		faults = append(faults,
			fmt.Errorf("the message of this rank has %d bytes, want less than %d: shorten the facts", n, maxFrame))
	}
	return errors.Join(faults...)
}

func (o *Options) registration() *registration {
	return &registration{worldSize: o.WorldSize, generation: o.Generation, facts: o.Facts, member: Member{
		Rank: o.Rank, LocalRank: max(o.LocalRank, -1), PID: os.Getpid(), Host: o.Host, Name: hostName(),
		Endpoint: o.Endpoint,
	}}
}

// host starts the server and joins it as rank 0.
func host(ctx context.Context, options Options) (*Group, error) {
	listener := options.Listener
	if listener == nil {
		var err error
		if listener, options.Address, err = listenOnFirst(options.addresses()); err != nil {
			return nil, err
		}
	}
	if at := listener.Addr().String(); options.Token == "" && !options.Insecure && options.WorldSize > 1 &&
		beyondLoopback(at) {
		_ = listener.Close()
		return nil, &ListenError{at, errors.New("other machines can reach this address: set a token (HETERO_TOKEN or parallel.token_file), or allow ranks without one (parallel.insecure = true)")}
	}
	s := newServer(options, listener)
	conn := s.local()
	g, err := enter(ctx, options, conn)
	if err != nil {
		_ = conn.Close()
		_ = listener.Close()
		if errors.Is(context.Cause(ctx), errTimeout) {
			err = s.missing(rendezvousAt(options.Address))
		}
		return nil, err
	}
	s.start()
	g.server = s
	if err = g.await(ctx); err == nil {
		return g, nil
	}
	if errors.Is(err, context.Cause(ctx)) {
		err = s.giveUp(ctx, g)
	} else {
		s.linger(ctx)
	}
	_ = g.Close()
	return nil, err
}

// lingerTime is the time for which rank 0 of a failed start keeps listening. In this time it reports the reason to
// ranks that connect later, which would otherwise wait until their time limit.
const lingerTime = 5 * time.Second

func (s *server) linger(ctx context.Context) {
	patience := time.NewTimer(lingerTime)
	defer patience.Stop()
	select {
	case <-s.allTold:
	case <-patience.C:
	case <-ctx.Done():
	}
}

func rendezvousAt(address string) string { return "rendezvous at " + address }

// giveUp tells all waiting ranks that rank 0 has stopped waiting, and returns the reason. If startup failed just before
// this call, the reason is that failure.
func (s *server) giveUp(ctx context.Context, g *Group) error {
	missing := s.missing(rendezvousAt(s.options.Address))
	err := error(missing)
	if !errors.Is(context.Cause(ctx), errTimeout) {
		err = &LostError{Rank: 0, Cause: fmt.Sprintf("it stopped waiting: %v", context.Cause(ctx))}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil {
		return s.failure
	}
	s.fail(err)
	return g.lateError(ctx, missing)
}

// addresses returns all possible addresses of rank 0.
func (o *Options) addresses() []string { return append([]string{o.Address}, o.Alternatives...) }

// visitRank0 tries to connect until rank 0 accepts or refuses this rank.
func visitRank0(ctx context.Context, options Options) (*Group, error) {
	search := search{began: time.Now()}
	pause := 20 * time.Millisecond
	for {
		for _, address := range options.addresses() {
			at := options
			at.Address = address
			if g, final, err := attempt(ctx, at); search.over(ctx, at, final, err) {
				return g, search.failure
			}
		}
		select {
		case <-ctx.Done():
			return nil, tooLate(ctx, options.Address, time.Since(search.began), search.last)
		case <-time.After(pause):
			pause = min(2*pause, time.Second)
		}
	}
}

// tokenPatience is the time for which a rank with several addresses keeps trying after the first refusal that
// ofAnotherRun recognises. The server that refused the rank may be rank 0 of another run, and this run's rank 0 may not
// listen yet.
const tokenPatience = 10 * time.Second

// search is the state of a rank that tries to reach rank 0.
type search struct {
	began   time.Time
	refused time.Time // time of the first refusal that ofAnotherRun recognises
	last    error     // last informative error of an attempt
	failure error     // the error that ended the search; nil: rank 0 was found
}

// over records the result of an attempt and reports whether it ends the search.
func (s *search) over(ctx context.Context, options Options, final bool, err error) bool {
	var missing *MissingError
	several := len(options.Alternatives) > 0
	switch {
	case err == nil:
		return true
	case several && ofAnotherStart(err):
		options.Log.Debug("rank 0 of another run uses this address", "address", options.Address)
	case final:
		s.failure = err
		return true
	case !beyondLoopback(options.Address) && (errors.Is(err, syscall.ENETUNREACH) ||
		errors.Is(err, syscall.EADDRNOTAVAIL) || isTimeout(err) && loopbackIsDown(net.Interfaces)):
		s.failure = &UnreachableError{options.Address, time.Since(s.began), fmt.Errorf("%w: %w", err, ErrLoopbackDown)}
		return true
	case ofAnotherRun(err):
		s.failure = fmt.Errorf("join rank 0 at %s: %w", options.Address, err)
		if s.refused.IsZero() {
			s.refused = time.Now()
		}
		if !several || time.Since(s.refused) >= tokenPatience {
			return true
		}
		s.last, s.failure = s.failure, nil
	case s.last == nil || ctx.Err() == nil && !ofAnotherRun(s.last) || errors.As(err, &missing):
		// keep an earlier error if this attempt ran out of time, because its error is not informative
		s.last = err
	}
	options.Log.Debug("rank 0 has not started yet", "address", options.Address, "reason", err)
	return false
}

// ofAnotherRun reports whether err shows that a server requires another token or certificate, or has another version.
// Either the server is not rank 0 of this run, or a setting of a rank is wrong.
func ofAnotherRun(err error) bool {
	return errors.Is(err, ErrToken) || errors.Is(err, ErrVersion) || errors.Is(err, handshake.ErrIntercepted) ||
		errors.As(err, new(*handshake.CertificateError))
}

// isTimeout reports whether an attempt got no answer. This is so, for example, if the loopback interface was up earlier
// and is down now.
func isTimeout(err error) bool {
	var slow net.Error
	return errors.As(err, &slow) && slow.Timeout()
}

// loopbackIsDown reports whether no loopback interface of this machine is up.
func loopbackIsDown(interfaces func() ([]net.Interface, error)) bool {
	all, err := interfaces()
	return err == nil && !slices.ContainsFunc(all, func(i net.Interface) bool {
		return i.Flags&net.FlagLoopback != 0 && i.Flags&net.FlagUp != 0
	})
}

// ofAnotherStart reports whether err shows that the other side belongs to another start of the run.
func ofAnotherStart(err error) bool {
	var disagree *DisagreeError
	return errors.As(err, &disagree) && slices.ContainsFunc(disagree.Differences, func(d Difference) bool {
		return d.Name == generationName
	})
}

// tooLate returns the error of a rank whose context has ended. After a time-out, it names the missing ranks, or the
// reason why rank 0 was not reachable.
func tooLate(ctx context.Context, address string, waited time.Duration, last error) error {
	var missing *MissingError
	switch {
	case !errors.Is(context.Cause(ctx), errTimeout):
		return fmt.Errorf("join rank 0 at %s: %w (last: %v)", address, context.Cause(ctx), last)
	case errors.As(last, &missing):
		return missing
	}
	return &UnreachableError{Address: address, Waited: waited, Err: last}
}

// attempt connects to rank 0 once and waits until all ranks have joined. The result final is true if another attempt
// would end in the same way.
func attempt(ctx context.Context, options Options) (g *Group, final bool, err error) {
	conn, err := options.Dial(ctx, options.Address)
	if err != nil {
		return nil, false, err
	}
	if g, err = enter(ctx, options, conn); err != nil {
		_ = conn.Close()
		return nil, false, err
	}
	if err = g.await(ctx); err == nil {
		return g, false, nil
	}
	if errors.Is(err, context.Cause(ctx)) {
		err = g.lateError(ctx, nil)
	}
	_ = g.Close()
	return nil, g.refused, err
}

// enter performs the handshake and registers this rank.
func enter(ctx context.Context, options Options, conn net.Conn) (*Group, error) {
	payload := options.registration().encode()
	if err := conn.SetDeadline(time.Now().Add(handshakeTime)); err != nil {
		return nil, err
	}
	// the past deadline interrupts reads and writes when ctx ends
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	var secure *handshake.TLS
	if options.Rank != 0 { // rank 0 runs in the same process as the server
		host, _, _ := net.SplitHostPort(options.Address) // no error: the address was dialled, so it has a port
		secure = &handshake.TLS{Client: true, Certificates: options.Certificates, Server: host}
	}
	link, err := greet(conn, options.Token, secure)
	if err == nil {
		err = link.write(kindRegister, payload)
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	g := &Group{
		options: options, link: link, outbox: newOutbox(), started: time.Now(), calls: map[uint32]*call{},
		formed: make(chan struct{}), broken: make(chan struct{}), ended: make(chan struct{}),
	}
	g.start()
	return g, nil
}

// await returns when the group is complete, or when it has failed. After a time-out it waits a moment for the report of
// rank 0, because rank 0 knows best which ranks are missing.
func (g *Group) await(ctx context.Context) error {
	select {
	case <-g.formed:
		return nil
	case <-g.broken:
		return g.Err()
	case <-ctx.Done():
	}
	if g.Rank() != 0 && errors.Is(context.Cause(ctx), errTimeout) {
		patience := time.NewTimer(closingTime)
		defer patience.Stop()
		select {
		case <-g.formed:
			return nil
		case <-g.broken:
			return g.Err()
		case <-patience.C:
		}
	}
	return context.Cause(ctx)
}

// lateError returns the error of await after ctx has ended. After a time-out, the error lists the missing ranks. They
// come from the parameter latest, or, if latest is nil, from the last report of the server.
func (g *Group) lateError(ctx context.Context, latest *MissingError) error {
	if !errors.Is(context.Cause(ctx), errTimeout) {
		return fmt.Errorf("join rank 0 at %s: %w", g.options.Address, context.Cause(ctx))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if latest == nil && g.absent != nil {
		latest = &MissingError{Missing: g.absent.Missing, Count: g.absent.Count, WorldSize: g.absent.WorldSize,
			Waited: time.Since(g.started)}
	}
	if latest == nil {
		return errors.New("rank 0 accepted the connection but did not answer")
	}
	latest.What = rendezvousAt(g.options.Address)
	return latest
}
