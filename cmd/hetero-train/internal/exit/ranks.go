package exit

import (
	"errors"

	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/hosts"
)

// LostRank is the rank that an error of the group is about, -1 for none.
func LostRank(err error) int {
	var lost *rendezvous.LostError
	if errors.As(firstCause(err), &lost) {
		return lost.Rank
	}
	return -1
}

// firstCause replaces the rank that passed a failure on by the rank that failed first. Of ranks on several machines the one that notices a loss ends the group.
func firstCause(err error) error {
	var lost *rendezvous.LostError
	if errors.As(err, &lost) {
		if rank, cause, ok := hosts.Origin(lost.Cause); ok {
			return &rendezvous.LostError{Rank: rank, Cause: cause}
		}
	}
	return err
}

// PeerOf is the rank that a communicator's error is about, -1 for none.
func PeerOf(err error) int {
	var peer *collective.PeerError
	if errors.As(err, &peer) {
		return peer.Rank
	}
	return -1
}

// LostPeer is an error of the group as communicators have it.
func LostPeer(err error) error {
	if rank := LostRank(err); rank >= 0 {
		return &collective.PeerError{Rank: rank, Cause: firstCause(err)}
	}
	return err
}
