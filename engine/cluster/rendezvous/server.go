package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hetero-train/hetero-train/engine/crowd"
	"github.com/hetero-train/hetero-train/engine/handshake"
)

// server is the rendezvous server in the process of rank 0.
type server struct {
	options  Options
	log      *slog.Logger
	listener net.Listener
	started  time.Time
	door     *door
	running  sync.WaitGroup
	stop     chan struct{}

	mu      sync.Mutex
	peers   []*peer // members by rank; nil: not connected
	present int
	formed  bool
	failure error // why the group ended; nil while it is intact
	closing bool
	told    int           // number of processes that have received the failure
	allTold chan struct{} // closed when told equals the number of ranks

	store      map[string]stored
	storeBytes int
	gets       map[string][]request // requests that wait for a key
	gathers    map[string]*gathering
	surveys    []*survey
	lastSurvey uint32
}

// peer is a rank that is in the group or about to join it.
type peer struct {
	member Member
	link   *link
	outbox *outbox
	heard  atomic.Int64 // time of the last frame, relative to the start of the server
	left   bool
}

func newServer(options Options, listener net.Listener) *server {
	return &server{
		options: options, log: options.Log, listener: listener, started: time.Now(), stop: make(chan struct{}),
		allTold: make(chan struct{}),
		door:    newDoor(options.WorldSize, options.Log),
		peers:   make([]*peer, options.WorldSize), store: map[string]stored{}, gets: map[string][]request{},
		gathers: map[string]*gathering{},
	}
}

// start starts to accept and watch connections.
func (s *server) start() {
	s.running.Go(s.accept)
	s.running.Go(s.watch)
}

// local connects rank 0 to its own server through a pipe, and returns rank 0's end of the pipe.
func (s *server) local() net.Conn {
	near, far := net.Pipe()
	s.running.Go(func() { s.serve(far, nil) })
	return near
}

func (s *server) accept() {
	// The gate limits the pace once the group is complete. After that, the only clients are late ranks, which the
	// server refuses with a reason, and programs without the token.
	gate := crowd.Gate{Listener: s.listener, Limited: s.isFormed}
	for {
		conn, wait, err := gate.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			select { // wait: resources are lacking for the moment, such as file descriptors
			case <-s.stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		if guest := s.door.Enter(conn); guest != nil {
			s.running.Go(func() {
				select {
				case <-s.stop:
				case <-time.After(wait):
				}
				s.serve(conn, guest)
			})
		}
	}
}

// serve handles one connection until it ends. The parameter guest is nil for rank 0's own connection.
func (s *server) serve(conn net.Conn, guest *crowd.Guest) {
	defer conn.Close()
	p, reg, err := s.receive(conn, guest)
	if guest.Leave() {
		err = errCrowded
	}
	if err != nil {
		s.door.complain(conn, err)
		return
	}
	s.running.Go(func() { p.outbox.run(p.link) })
	defer p.outbox.close()
	if err := s.admit(p, reg); err != nil {
		level := slog.LevelWarn
		if ofAnotherStart(err) { // not a warning: such a rank connects again and again
			level = slog.LevelDebug
		}
		s.log.Log(context.Background(), level, "rank refused", "rank", reg.member.Rank, "who", reg.member.who(),
			"reason", err)
		p.sendBroken(err)
		// The refused rank closes the connection. Setting the deadline fails only if it already has.
		_ = conn.SetDeadline(time.Now().Add(handshakeTime))
	}
	for {
		k, payload, err := p.link.read()
		if err == nil {
			p.heard.Store(int64(time.Since(s.started)))
			err = s.handle(p, k, payload)
		}
		if err != nil {
			s.gone(p, causeOf(err))
			return
		}
	}
}

// receive performs the handshake and reads the registration, all within handshakeTime.
func (s *server) receive(conn net.Conn, guest *crowd.Guest) (*peer, registration, error) {
	if err := conn.SetDeadline(time.Now().Add(handshakeTime)); err != nil {
		return nil, registration{}, err
	}
	var secure *handshake.TLS
	if guest != nil { // rank 0's own connection stays within the process
		secure = &handshake.TLS{Certificates: s.options.Certificates}
	}
	link, err := welcome(conn, s.options.Token, secure, func() {
		if s.options.Token != "" { // without a token, a client proves nothing
			guest.Prove()
		}
	})
	if err != nil {
		return nil, registration{}, err
	}
	k, payload, err := link.read()
	if err != nil {
		return nil, registration{}, err
	}
	reg, err := decodeRegistration(payload)
	if err != nil || k != kindRegister {
		return nil, registration{}, errMalformed
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, registration{}, err
	}
	p := &peer{member: reg.member, link: link, outbox: newOutbox()}
	p.heard.Store(int64(time.Since(s.started)))
	return p, reg, nil
}

// admit makes a peer a member, or returns the reason why it is refused. If the ranks were started with different
// settings, startup fails on all ranks.
func (s *server) admit(p *peer, reg registration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	rank := reg.member.Rank
	own := registration{worldSize: s.options.WorldSize, generation: s.options.Generation, facts: s.options.Facts}
	found := compare(reg, own)
	stale := reg.generation != own.generation
	switch {
	case s.failure != nil && !stale:
		s.tell()
		return s.failure
	case len(found) > 0:
		err := &DisagreeError{Rank: rank, Who: reg.member.who(), Differences: found}
		if !s.formed && !stale {
			s.fail(err)
			s.tell()
		}
		return err
	case s.peers[rank] != nil && !s.formed:
		err := &DuplicateError{Rank: rank, First: s.peers[rank].member.who(), Second: reg.member.who()}
		s.fail(err)
		s.tell()
		return err
	case s.closing:
		return errors.New("rank 0 leaves the group")
	case s.formed:
		return fmt.Errorf("the group of %d ranks is complete: rank %d is %s", s.options.WorldSize, rank,
			s.peers[rank].member.who())
	}
	s.peers[rank] = p
	s.present++
	s.log.Debug("rank registered", "rank", rank, "who", reg.member.who(), "present", s.present, "of",
		s.options.WorldSize)
	if s.present == s.options.WorldSize {
		s.form()
	}
	return nil
}

const generationName = "generation"

// compare lists the values of a rank that differ from those of rank 0.
func compare(reg, own registration) []Difference {
	var found []Difference
	number := func(name string, value, rank0 any) {
		if value != rank0 {
			found = append(found, Difference{name, fmt.Sprint(value), fmt.Sprint(rank0)})
		}
	}
	number(generationName, reg.generation, own.generation)
	if refusal, ok := refusalIn(reg.facts); ok {
		if len(found) == 0 { // a refusal in another start does not concern this start
			found = append(found, refusal)
		}
		return found
	}
	number("world size", reg.worldSize, own.worldSize)
	facts := differences(reg.facts, own.facts)
	if i := slices.IndexFunc(facts, func(d Difference) bool { return d.Name == meetingName }); i >= 0 {
		facts = []Difference{explained(facts[i])}
	}
	found = append(found, facts...)
	if len(found) == 0 && (reg.member.Rank < 0 || reg.member.Rank >= own.worldSize) {
		found = append(found,
			Difference{"rank", fmt.Sprint(reg.member.Rank), fmt.Sprintf("ranks 0 to %d", own.worldSize-1)})
	}
	return found
}

// explained replaces the values of the fact meetingName in a Difference by descriptions.
func explained(d Difference) Difference {
	const late, counting = "that of a rank",
		"that of nodes that count their ranks (a node joined late, or another start uses this address)"
	if d.Rank0 == "none" {
		return Difference{d.Name, counting, late}
	}
	return Difference{d.Name, late, counting}
}

// form sends the roster to every rank. The caller must hold s.mu.
func (s *server) form() {
	s.formed = true
	members := make([]Member, len(s.peers))
	for rank, p := range s.peers {
		members[rank] = p.member
	}
	fillLocalRanks(members)
	var roster [][]byte
	var e encoder
	for rank := range members {
		members[rank].encode(&e)
		if len(e.b) > maxRosterAt || rank == len(members)-1 {
			roster = append(roster, e.b)
			e.b = nil
		}
	}
	for _, p := range s.peers {
		for _, part := range roster {
			s.send(p, kindMember, part)
		}
		s.send(p, kindFormed, nil)
	}
	s.log.Debug("group complete", "ranks", len(members), "after", time.Since(s.started))
}

func (s *server) isFormed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.formed
}

// fillLocalRanks assigns a local rank to each rank that has reported none. The ranks of a host get different
// numbers.
func fillLocalRanks(members []Member) {
	taken := map[string]map[int]bool{}
	for _, m := range members {
		if taken[m.Host] == nil {
			taken[m.Host] = map[int]bool{}
		}
		if m.LocalRank >= 0 {
			taken[m.Host][m.LocalRank] = true
		}
	}
	for i := range members {
		m := &members[i]
		for next := 0; m.LocalRank < 0; next++ {
			if !taken[m.Host][next] {
				taken[m.Host][next] = true
				m.LocalRank = next
			}
		}
	}
}

// send queues a frame for a peer. If the outbox is full because the peer does not read, send closes its connection. The
// caller must hold s.mu.
func (s *server) send(p *peer, k kind, payload []byte) {
	if !p.outbox.push(k, payload) {
		_ = p.link.conn.Close() // serve then ends and reports the lost rank
	}
}

func (p *peer) sendBroken(err error) {
	var e encoder
	encodeError(&e, err)
	p.outbox.push(kindBroken, e.b)
	p.outbox.close()
}

// fail ends the group for all ranks. The caller must hold s.mu.
func (s *server) fail(err error) {
	if s.failure != nil || s.closing {
		return
	}
	s.failure = err
	s.log.Debug("group broken", "reason", err)
	for _, p := range s.peers {
		if p != nil && !p.left {
			p.sendBroken(err)
			s.tell()
		}
	}
	s.gets, s.gathers, s.store, s.surveys = nil, nil, nil, nil
}

// tell records that one more process has received the failure. The caller must hold s.mu.
func (s *server) tell() {
	if s.told++; s.told == len(s.peers) {
		close(s.allTold)
	}
}

// gone records that a peer's connection has ended. If the peer is a member, the group may break.
func (s *server) gone(p *peer, cause string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rank := p.member.Rank
	switch {
	case rank < 0 || rank >= len(s.peers) || s.peers[rank] != p || p.left || s.failure != nil || s.closing:
	case !s.formed:
		s.peers[rank] = nil // the rank may reconnect
		s.present--
		s.log.Warn("rank lost before the group was complete", "rank", rank, "who", p.member.who(), "cause", cause)
	default:
		s.fail(&LostError{Rank: rank, Cause: cause})
	}
}

// close says goodbye, ends all connections and frees the port.
func (s *server) close() {
	s.mu.Lock()
	s.closing = true
	_ = s.listener.Close() // an error has no effect, because the group has ended
	for _, p := range s.peers {
		if p != nil {
			p.outbox.push(kindBye, nil)
			p.outbox.close()
			_ = p.link.conn.SetWriteDeadline(time.Now().Add(closingTime)) // fails only if the connection is closed
		}
	}
	s.mu.Unlock()
	close(s.stop)
	s.door.close()
	s.running.Wait()
}
