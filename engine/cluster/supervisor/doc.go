// Package supervisor starts the ranks of a run on this machine, one process each, and stays until the last has ended.
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
// # What a rank gets
//
// Its environment is Options.Env with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, and
// OMP_NUM_THREADS as its part of Threads. Its standard input is empty. Standard output and error of the first rank go where the
// caller says, as they are where that is a file (a terminal stays one); those of the others go to Output, and the end of what they
// wrote to standard error is in the error where they fail.
//
// Where MasterPort is 0, Run opens a free port of 127.0.0.1 and hands the open socket to rank 0, which gets it from [Listener]:
// nobody can take the port in between.
//
// # Signals
//
// The library installs no signal handler: what arrives on Options.Signals is passed on to every rank. Ranks are in process groups of
// their own, so that Ctrl-C reaches them once, through the supervisor. Ranks that do not end within Grace and KillAfter of a signal that tells them to
// are killed; after a second SIGINT, within KillAfter. A rank that dies of such a signal, because it was only being loaded, stopped as told.
//
// # Time to save
//
// Rank 0 inherits a pipe, its [Lifeline]. While rank 0 holds it, it sends beats, and each beat restarts the time-outs, for up to half an hour. A frozen process
// sends no beats. Time-outs also restart after a pause of the supervisor itself, or of its machine.
//
// # When a rank fails
//
// It is reported at once (Options.Log), with exit code or signal, and whether the kernel killed it for want of memory. When a rank has ended, however it did,
// the others have Grace to end by themselves; then they get SIGTERM, and SIGKILL after KillAfter. Run returns the first failure that is not the
// consequence of another: a rank that ends with a code in Secondary says that it lost another one, so the search goes on for who
// that was, among those that fail later or, if they do not end, hang. Codes in Orderly say: stopped as told, and saved.
//
// # No orphans
//
// On Linux ranks die with the supervisor, even if that is killed (PR_SET_PDEATHSIG, set from an OS thread that lives as long as they do).
// When a rank has ended, what is left of its process group is killed.
package supervisor
