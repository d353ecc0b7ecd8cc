// Package rendezvous brings the ranks of a run together: a server in the process of rank 0, a connection from every rank
// to it (rank 0's own too), and over these a small store, exchanges among all ranks, and the news of who is gone.
//
//	group, err := rendezvous.Join(ctx, rendezvous.Options{
//		Rank: 1, WorldSize: 4, LocalRank: -1,
//		Address:  "node-a:29500",
//		Token:    token,
//		Endpoint: listener.Addr().String(), // where the other ranks find this one
//		Facts:    []rendezvous.Fact{{Name: "version", Value: version}, {Name: "config", Value: configText}},
//	})
//	if err != nil { … names who is missing, who disagrees with whom about what, or what is wrong with the address … }
//	defer group.Close()
//	for _, member := range group.Members() { … member.Host, member.Endpoint … }
//	err = group.Agree(ctx, []rendezvous.Fact{{Name: "plan", Value: plan.Describe()}})
//	sizes, err := group.Gather(ctx, "sizes", mySize) // one value a rank, by rank
//	doing, err := group.Survey(ctx)                  // what each rank is doing, when a step does not end
//	…
//	select {
//	case <-group.Broken(): // group.Err() is a *LostError: which rank, and why
//	…
//
// Nodes that do not know how many ranks the others start meet before that, in [CountRanks].
//
// # Joining
//
// Every rank states who it is and what must be equal everywhere: world size, generation and Facts. The first one that
// does not agree with rank 0, or comes with a rank that is taken, ends the start of ALL ranks with an error that shows both sides;
// rank 0 stays for up to 5 seconds to tell it to those that come later.
// A rank whose connection breaks before the group is complete may come again. A process with another generation (an earlier start
// of the same run) is sent away and disturbs nobody. Join gives up after Options.Timeout and names the missing ranks, on every rank that waits.
//
// # Afterwards
//
// A closed connection, or silence for longer than HeartbeatTimeout, means that a rank is gone: every other rank's group breaks
// with the same *LostError. So does Abort, with a cause in words. Close leaves in peace: a group breaks by it for nobody, but what
// needs the rank that left fails. Nothing waits for ever: a broken group, the context or a rank that left ends every call.
//
// # Who may connect
//
// Where the server listens on more than loopback a [Token] is required, unless Insecure says otherwise. Both sides prove that they know it
// (HMAC-SHA256 over fresh random numbers of both, so a recorded handshake is worth nothing), and every later frame carries a
// truncated HMAC under keys of this connection and its number. Contents are not encrypted. No message names a file or a command.
//
// Strangers cost little: a handshake has 5 seconds, at most four connections a rank may be in it at once (beyond
// that the oldest of the address that has most is dropped, those first that do not speak the protocol), frames are at most
// 1 MiB and only take memory as bytes arrive.
// The port stays open while the group lives, and answers late comers with the reason why they cannot join.
//
// # Frames
//
//	length  4 bytes, big-endian: of kind and payload, at most 1 MiB
//	kind    1 byte
//	payload length - 1 bytes: integers big-endian, texts with a 4-byte length before them
//	tag     16 bytes: HMAC-SHA256(key of this direction, number of the frame, kind, payload)
//
// # Errors
//
//	*ListenError      rank 0 cannot listen: port in use, no token
//	*UnreachableError rank 0 was not there in time, or what answers there is no rank 0
//	ErrToken          rank 0 has another token, or none
//	*DisagreeError    a rank and rank 0 differ: every difference with both values
//	*DuplicateError   two processes with the same rank: both
//	*MissingError     who did not come in time, to the group or to an exchange
//	*LostError        which rank is gone, and why
package rendezvous
