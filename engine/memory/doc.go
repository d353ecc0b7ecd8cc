// Package memory accounts for the memory of a rank: the bytes that it needs for each purpose, the bytes that it may
// use, and the bytes that it uses.
//
//	limit := memory.ReadLimit(os.DirFS("/"), sharers)      // limit of this process, one of several ranks of a machine
//	used, known := memory.Resident(os.DirFS("/"), 0)       // measured before the model is allocated
//	account := memory.Account{Samples: 32, Unified: true, Limit: limit, …}
//	if !account.Fits() { … account.String() names the parts, the limit and its source … }
//
// An [Account] is a list of named parts. Only package replica computes it, from the plans for a number of samples. All
// of these use it: the command plan, the check of the batch size, the search for the largest batch, the limits of the
// balancer and the records of a run.
//
// The part "program" is measured: it is the memory of the process just before the model is allocated. It contains the
// runtime, the native libraries, the open data set, threads and the buffers of open connections.
package memory
