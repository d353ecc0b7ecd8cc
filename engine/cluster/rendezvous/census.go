package rendezvous

import (
	"context"
	"encoding/binary"
	"fmt"
)

// meetingName is the name of a fact that only processes in CountRanks have. If this fact differs, one side is a rank,
// and the other side is a node that counts its ranks. Their other facts also differ, but explain nothing.
const meetingName = "meeting"

// CountRanks numbers the ranks of nodes that start unequal numbers of ranks, for example four on one node and one on
// another. Every node must call it before it starts its ranks. In options, Rank is the node's number and WorldSize is
// the number of nodes. The parameter ranks is the number of ranks that this node will start. CountRanks returns the
// node's first rank and the number of all ranks. It closes the port before it returns, so rank 0 may listen at the same
// address.
func CountRanks(ctx context.Context, options Options, ranks int) (first, total int, err error) {
	if ranks < 0 {
		return 0, 0, fmt.Errorf("got %d ranks on this node, want 0 or more", ranks)
	}
	options.Facts = append([]Fact{{Name: meetingName, Value: "nodes that count their ranks"}}, options.Facts...)
	group, err := Join(ctx, options)
	if err != nil {
		return 0, 0, err
	}
	counts, err := group.Gather(ctx, "ranks of each node", binary.BigEndian.AppendUint32(nil, uint32(ranks)))
	if err != nil || group.Rank() == 0 {
		_ = group.Close() // never fails
	}
	if err != nil {
		return 0, 0, err
	}
	// Wait until node 0 has closed the port. Otherwise the ranks of this node could connect to the server of
	// CountRanks, which will close.
	select {
	case <-group.ended:
	case <-ctx.Done():
	}
	_ = group.Close()
	if err := ctx.Err(); err != nil {
		return 0, 0, context.Cause(ctx)
	}
	for node, count := range counts {
		if len(count) != 4 {
			return 0, 0, fmt.Errorf("number of ranks of node %d: %w", node, errMalformed)
		}
		n := int(binary.BigEndian.Uint32(count))
		if node < group.Rank() {
			first += n
		}
		total += n
	}
	return first, total, nil
}
