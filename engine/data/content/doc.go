// Package content compares the data of machines that train together. Machines with different files would train on a
// mixture, and no loss would tell.
//
//	team, err := content.Meet(ctx, content.Options{Content: units, Place: place, Gather: group.Gather, …}) // all ranks
//	err = team.Compare(ctx)        // at the start: all names and labels, and the content of some units
//	ledger := team.Ledger()        // nil if all ranks read the same files
//	watch.Send(ledger.Note)        // the hashes of the units that this rank reads for training
//	ledger.Audit(ctx)              // in a goroutine of its own: reads the other units slowly
//	err = ledger.Compare(ctx, …)   // at intervals, on all ranks between the same two steps
//
// Ranks that read the same files of one machine have the same Place; only the first of them reads for the comparison.
//
// # What is compared
//
// At the start, the ranks compare the names, labels and known sizes of all units. They also compare the content of
// [StartUnits] units or of [StartBytes] bytes, whichever is less. The machines visit units in the same order, which the
// seed determines and which spreads evenly over the data. If n of N units are compared and a fraction f of all units
// differs, the comparison detects the difference with probability 1 - (1-f)^n, and with certainty if n = N.
//
// While the ranks train, every rank notes the hash of each unit that it reads. The ledgers of all ranks exchange their
// notes. A unit that two machines have read, in any two epochs, is thus compared. Each epoch gives most units to
// another rank, so with M machines of equal shares a unit that differs on one machine is read by this machine and by
// another one within two epochs with probability 2 (M-1) / M^2, and within e epochs with 1 - (1/M)^e - ((M-1)/M)^e. The
// audit additionally reads units in the order of the start, and continues until it has read all of them.
//
// # Errors
//
// All ranks return the same *[DifferenceError], which names the ranks, their machines and paths, and a unit.
package content
