// Package exchange chooses and opens the communicators between ranks: shared memory, Gloo, NCCL.
//
// All ranks must call [Agree], and all reach the same choice. NCCL needs a GPU on every rank; [WantNCCL] checks this
// condition.
package exchange
