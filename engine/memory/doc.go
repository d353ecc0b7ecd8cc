// Package memory accounts for the memory of a rank: how many bytes it needs and for what, how many it may use, and how
// many it uses.
//
//	limit := memory.ReadLimit(os.DirFS("/"), pids)         // of this process, one of several ranks of a machine
//	used, known := memory.Resident(os.DirFS("/"), 0)       // measured before the model has memory
//	account := memory.Account{Samples: 32, Unified: true, Limit: limit, …}
//	if !account.Fits() { … account.String() names the parts, the limit and its source … }
//
// An [Account] is a list of named parts. Only package replica computes it, from the plans for a number of samples. The
// command plan, the refusal of a batch, the search for the largest batch, the limits of the balancer and the records of
// a run use this account.
//
// The part "program" is measured: it is the memory of the process at the moment before the model gets memory. It
// contains the runtime, the native libraries, the open data set, threads and the buffers of open connections.
package memory
