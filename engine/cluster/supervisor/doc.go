// Package supervisor starts the ranks of a run on this machine, one process each, and waits until the last one has
// ended.
//
//	signals := make(chan os.Signal, 4)
//	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
//	err := supervisor.Run(ctx, supervisor.Options{
//		Command: []string{program, "-c", file}, Ranks: 4, Threads: 16,
//		Stdout: os.Stdout, Stderr: os.Stderr,                        // of rank 0
//		Output: func(rank int) io.Writer { return logFile(rank) },   // of the others
//		Signals: signals, Orderly: []int{75, 130}, Secondary: []int{5},
//	})
//	var failed *supervisor.RankError
//	if errors.As(err, &failed) { … failed.Error() names rank and cause; failed.Code is its exit code … }
//
// # Environment of a rank
//
// A rank's environment is Options.Env with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT,
// and its part of Threads as OMP_NUM_THREADS. Its standard input is empty. Standard output and error of the first rank
// go to Stdout and Stderr. A file is passed on directly, so a terminal remains a terminal. The output of the other
// ranks goes to Output. If one of these fails, the error contains the end of its standard error.
//
// If MasterPort is 0, Run opens a free port of 127.0.0.1 and passes the open socket to rank 0, which gets it from
// [Listener]. No other process can take the port in between.
//
// # Signals
//
// The library installs no signal handler. It forwards signals from Options.Signals to every rank. Ranks have their own
// process groups, so that Ctrl-C reaches them only once, through the supervisor. Ranks that do not end within Grace and
// KillAfter of a stop signal are killed; after a second SIGINT within KillAfter. If a stop signal kills a rank that is
// still loading its program, the rank counts as stopped in order.
//
// # Time to save
//
// Rank 0 inherits a pipe, its [Lifeline]. While rank 0 holds it, it sends heartbeats, and each one restarts the time
// limits, for up to half an hour. A frozen process sends no heartbeats. The time limits also restart after a pause of
// the supervisor itself or of its machine.
//
// # Failed ranks
//
// A failed rank is reported at once (Options.Log), with its exit code or signal, and whether the kernel killed it
// because memory ran out. When a rank has ended for any reason, the others have Grace to end; then they get SIGTERM,
// and SIGKILL after KillAfter.
//
// Run returns the first failure that is not the consequence of another. An exit code in Secondary means that the rank
// lost another rank. Run then searches for the cause among the ranks that fail later or hang. An exit code in Orderly
// means that the rank stopped as requested and saved its state.
//
// A rank may send the cause of its failure to the supervisor ([ReportCause]) instead of printing it. The error then
// contains the cause. If all ranks of the machine end with the same exit code and cause, the error is the cause alone.
//
// # Orphans
//
// On Linux ranks die with the supervisor, even if it is killed (PR_SET_PDEATHSIG, set from an OS thread that lives as
// long as the ranks). When a rank has ended, the rest of its process group is killed.
package supervisor
