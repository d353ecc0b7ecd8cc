// Package exchange chooses and opens the communicators between ranks: shared memory, Gloo, NCCL.
//
// All ranks call [Agree] and choose alike. NCCL needs a GPU on every rank; see [WantNCCL].
package exchange
