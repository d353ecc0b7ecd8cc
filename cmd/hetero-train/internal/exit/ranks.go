package exit

import (
	"errors"

	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/hosts"
)

// LostRank returns the rank that an error of the process group names, or -1.
func LostRank(err error) int {
	var lost *rendezvous.LostError
	if errors.As(firstCause(err), &lost) {
		return lost.Rank
	}
	return -1
}

// firstCause returns an error that names the rank that failed first, instead of the rank that reported the failure.
// These ranks can differ on several machines, because the rank that detects a loss ends the group.
func firstCause(err error) error {
	var lost *rendezvous.LostError
	if errors.As(err, &lost) {
		if rank, cause, ok := hosts.Origin(lost.Cause); ok {
			return &rendezvous.LostError{Rank: rank, Cause: cause}
		}
	}
	return err
}

// PeerOf returns the rank that an error of a communicator names, or -1.
func PeerOf(err error) int {
	var peer *collective.PeerError
	if errors.As(err, &peer) {
		return peer.Rank
	}
	return -1
}

// LostPeer converts an error of the process group to an error of a communicator.
func LostPeer(err error) error {
	if rank := LostRank(err); rank >= 0 {
		return &collective.PeerError{Rank: rank, Cause: firstCause(err)}
	}
	return err
}
