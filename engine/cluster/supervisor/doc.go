// Package supervisor starts the ranks of a run on this machine, one process per rank, and waits until all have ended.
//
//	signals := make(chan os.Signal, 4)
//	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
//	err := supervisor.Run(ctx, supervisor.Options{
//		Command: []string{program, "-c", file}, Ranks: 4, Threads: 16,
//		Stdout: os.Stdout, Stderr: os.Stderr,                        // of rank 0
//		Output: func(rank int) io.Writer { return logFile(rank) },   // of the other ranks
//		Signals: signals, Orderly: []int{75, 130}, Secondary: []int{5},
//	})
//	var failed *supervisor.RankError
//	if errors.As(err, &failed) { … failed.Error() names rank and cause; failed.Code is its exit code … }
//
// # Environment of a rank
//
// The environment of a rank is Options.Env plus RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and
// MASTER_PORT. With Options.Threads, OMP_NUM_THREADS is the rank's part of these threads. Its standard input is empty.
// Standard output and error of the first rank go to Stdout and Stderr. If Stdout or Stderr is a file, the rank writes
// to it directly, so it can detect a terminal. The output of the other ranks goes to Output. If one of the other ranks
// fails, the error contains the end of its standard error.
//
// If MasterPort is 0, Run opens a free port of 127.0.0.1 and passes the open socket to rank 0, which gets it from
// [Listener]. No other process can therefore take the port before rank 0 uses it.
//
// # Signals
//
// The library installs no signal handler. It forwards signals from Options.Signals to every rank. Ranks have their own
// process groups, so that Ctrl-C reaches them only once, through the supervisor. After a stop signal, ranks have the
// time Grace plus KillAfter to end; then Run kills them. After a second SIGINT they have only KillAfter. If a stop
// signal kills a rank that is still loading its program, Run treats the rank as stopped on request.
//
// # Time to save
//
// Rank 0 inherits a pipe, its [Lifeline]. After rank 0 calls Lifeline.Hold, for example while it saves, the Lifeline
// sends heartbeats to the supervisor. Each heartbeat restarts the time limits, for up to half an hour in total. A
// frozen process sends no heartbeats. If the supervisor itself or the machine was paused, the time limits also restart.
//
// # Failed ranks
//
// A failed rank is reported immediately (Options.Log), with its exit code or signal, and whether the kernel killed it
// because memory ran out. When a rank has ended for any reason, the other ranks have the time Grace to end. After it
// they get SIGTERM, and after the time KillAfter they get SIGKILL.
//
// Run returns the first failure that is not the consequence of another failure. An exit code in Secondary means that
// the rank lost another rank. Run then searches for the cause among the ranks that fail later or hang. An exit code in
// Orderly means that the rank stopped as requested and saved its state.
//
// If memory ran out, the report contains the limit of the control group and its largest use. It also contains the
// description that the rank sent with [ReportMemory].
//
// A rank may send the cause of its failure to the supervisor ([ReportCause]) instead of printing it. The error then
// contains the cause. If all ranks of the machine end with the same exit code and cause, the error is the cause alone.
//
// # Orphans
//
// On Linux, ranks get SIGTERM when the supervisor ends, even if it is killed. The kernel ensures this through
// PR_SET_PDEATHSIG, which applies to the OS thread that started a rank. This thread therefore lives as long as the
// ranks. When a rank has ended, the supervisor kills the other processes of its process group.
package supervisor
