// Package shares owns the division of a micro-batch among ranks. Only the [Owner] stores the current shares, the next
// shares, whether this rank is ready for them, and the hash with which ranks compare them. The loader, gradsync and the
// plans of a replica read the shares from the Owner after a change, and store no shares themselves.
//
// A change takes several steps. [Owner.Propose] begins a change. The plans for this rank's next share are then compiled
// in the background. After each step, the ranks exchange the result of [Owner.Vote]. Once no rank is unready, all ranks
// call [Owner.Switch] before the same step.
//
// If ranks join or leave between two steps, gradsync.Group.Change changes the group, and [Owner.Regroup] the shares.
//
// # Duties of the caller
//
// Only one goroutine uses an Owner. All ranks propose the same shares before the same step.
//
// # Errors
//
// Shares that break the [Rules] or exceed the limit of a rank are refused, and the current shares remain.
package shares
