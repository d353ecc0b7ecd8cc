// Package content compares the data of the machines of a run. If machines had different files, the run would train on a
// mixture, and the loss would not reveal this.
//
//	team, err := content.Meet(ctx, content.Options{Content: units, Place: place, Gather: group.Gather, …}) // all ranks
//	err = team.Compare(ctx)        // at the start: all names and labels, and the content of some units
//	ledger := team.Ledger()        // nil if all ranks read the same files
//	watch.Send(ledger.Note)        // the hashes of the units that this rank reads for training
//	ledger.Audit(ctx)              // in a goroutine of its own: reads the other units slowly
//	err = ledger.Compare(ctx, …)   // at intervals, on all ranks between the same two steps
//
// Ranks that read the same files of one machine have the same Place. Only the first of them reads for the comparison.
//
// # What is compared
//
// At the start, the ranks compare the names, labels and known sizes of all units. They also compare the content of
// [StartUnits] units or of [StartBytes] bytes, whichever is less. All machines visit the units in the same order. The
// order depends on the seed, and is spread evenly over the data. If n of N units are compared and a fraction f of all
// units differs, the comparison detects the difference with probability 1 - (1-f)^n. If n = N, it always detects the
// difference.
//
// During training, every rank notes the hash of each unit that it reads. The ledgers of all ranks exchange these notes.
// A unit that two machines have read, in any two epochs, is therefore compared. Each epoch assigns most units to
// another rank. Let a unit differ on one of M machines with equal shares. The comparison detects it within two epochs
// with probability 2 (M-1) / M^2, and within e epochs with probability 1 - (1/M)^e - ((M-1)/M)^e. The audit also reads
// the remaining units, in the same order as the comparison at the start.
//
// # Errors
//
// All ranks return the same *[DifferenceError], which names the ranks, their machines and paths, and a unit.
package content
