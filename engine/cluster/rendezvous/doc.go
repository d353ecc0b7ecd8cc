// Package rendezvous connects the ranks of a run. The process of rank 0 runs a server, and every rank (including rank
// 0) has a connection to it. The package provides a small store, exchanges among all ranks, and notification of lost
// ranks.
//
//	group, err := rendezvous.Join(ctx, rendezvous.Options{
//		Rank: 1, WorldSize: 4, LocalRank: -1,
//		Address:  "node-a:29500",
//		Token:    token,
//		Endpoint: listener.Addr().String(), // address at which other ranks reach this rank
//		Facts:    []rendezvous.Fact{{Name: "version", Value: version}, {Name: "config", Value: configText}},
//	})
//	if err != nil { … names the missing ranks, the differences between ranks, or the fault of the address … }
//	defer group.Close()
//	for _, member := range group.Members() { … member.Host, member.Endpoint … }
//	err = group.Agree(ctx, []rendezvous.Fact{{Name: "plan", Value: plan.Describe()}})
//	sizes, err := group.Gather(ctx, "sizes", mySize) // one value per rank, by rank
//	doing, err := group.Survey(ctx)                  // what each rank is doing; call it when a step hangs
//	…
//	select {
//	case <-group.Broken(): // group.Err() is a *LostError: the lost rank and the cause
//	…
//
// A node that does not know how many ranks the other nodes have calls [CountRanks] first.
//
// # Joining
//
// Every rank registers its identity and the values that must be equal on all ranks: world size, generation and Facts.
// If a rank's values differ from rank 0's, or its number is already taken, startup fails on ALL ranks. The error shows
// both sides. Rank 0 keeps listening for up to 5 seconds, to report the error to ranks that connect later. A rank that
// cannot join, for example because it refuses its data, calls Refuse, and startup fails in the same way. A rank whose
// connection breaks before the group is complete may reconnect. The server refuses a process of another generation (an
// earlier start of the same run), and this start continues. After Options.Timeout, Join fails on every waiting rank,
// with an error that names the missing ranks.
//
// # Lost ranks
//
// A rank is lost when its connection closes or it is silent for longer than HeartbeatTimeout. The groups of all other
// ranks then break with the same *LostError. Abort also breaks the groups of all ranks, with the text of a cause. Close
// leaves the group without breaking it. Later calls of other ranks fail if they need the departed rank. No call waits
// forever: it ends when the group breaks, its context ends, or a rank that it needs has left.
//
// # Security
//
// If the server listens beyond loopback, a [Token] is required, unless Insecure is set. On every connection, package
// handshake proves that both sides know the token. It then encrypts the connection with TLS 1.3, and binds the TLS
// session to the proof. With Options.Certificates, both sides also verify each other's certificate. Every later frame
// contains a truncated HMAC under a key of this connection, which also covers the frame's number. No message contains a
// file name or a command.
//
// Clients without the token cannot prevent a start, and use few resources. The server never waits for a connection. A
// handshake may take at most 5 seconds. At most 256 connections plus four per rank may be in the handshake at the same
// time. Above this limit, the server drops the oldest connection of the address with the most connections (package
// crowd). It never drops a connection whose client has proved that it knows the token. Frames have at most 1 MiB, and
// memory is allocated only as bytes arrive. The port stays open while the group exists, so that the server can tell
// late ranks why they cannot join. Once the group is complete, the server accepts connections through a crowd.Gate, so
// that a flood of connections takes little CPU time.
//
// # Frames
//
//	length  4 bytes, big-endian: number of bytes of kind and payload, at most 1 MiB
//	kind    1 byte
//	payload length - 1 bytes: integers big-endian, texts preceded by a 4-byte length
//	tag     16 bytes: HMAC-SHA256(key of this direction, number of the frame, kind, payload)
//
// # Errors
//
//	*ListenError      rank 0 cannot listen: port in use, no token
//	*UnreachableError rank 0 was not reachable in time, or another program listens at its address
//	ErrToken          rank 0 has another token, or none
//	ErrVersion        rank 0 has another version of the protocol
//	*handshake.CertificateError, handshake.ErrIntercepted
//	                  TLS: a refused certificate; a program between this rank and rank 0
//	*DisagreeError    a rank and rank 0 differ: every difference with both values; or why a rank cannot join
//	*DuplicateError   two processes with the same rank
//	*MissingError     the ranks that did not join the group, or did not reach an exchange, in time
//	*LostError        the lost rank and the cause
package rendezvous
