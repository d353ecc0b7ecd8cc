// Package exchange chooses and opens the communicators between ranks: shared memory, Gloo, NCCL.
//
// All ranks must call [Agree], which returns the same choice on all ranks. NCCL needs a GPU on every rank; [WantNCCL]
// checks this condition.
package exchange
