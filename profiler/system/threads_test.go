package system

import "testing"

func TestThreadsRefused(t *testing.T) {
	const (
		limits = "Limit  Soft Limit  Hard Limit  Units\nMax processes             64                   128                  processes \n"
		user   = "Name:\ttrain\nUid:\t1000\t1000\t1000\t1000\nThreads:\t8\nCapEff:\t0000000000000000\n"
		host   = "         0          0 4294967295\n"
	)
	base := xeon().with(machine{
		"proc/self/limits": limits, "proc/self/status": user, "proc/self/uid_map": host,
		"proc/loadavg":   "0.1 0.1 0.1 2/400 5000\n",
		"proc/11/status": user, "proc/12/status": "Uid:\t1000\t0\t0\t0\nThreads:\t30\n",
		"proc/13/status": "Uid:\t0\t1000\t1000\t1000\nThreads:\t300\n", "proc/net": "",
	})
	const v1 = "31 22 0:27 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
	cases := []struct {
		name  string
		files machine
		more  int
		want  string // part of the error; "": the number of threads is allowed
	}{
		{"room of the user", base, 26, ""},
		{"one too many", base, 27, "RLIMIT_NPROC of user 1000 allows 64 threads, of which 38 exist"},
		{
			"no limit",
			base.with(
				machine{
					"proc/self/limits": "Max processes             unlimited            unlimited            processes \n"}),
			1000, ""},
		{"nothing is known", xeon(), 1000, ""},
		{"fewer threads on the machine than the limit", base.with(machine{"proc/loadavg": "0.1 0.1 0.1 2/30 5000\n"}),
			34, ""},
		{"root", base.with(machine{"proc/self/status": "Uid:\t0\t0\t0\t0\nThreads:\t8\n"}), 1000, ""},
		{
			"root of a user namespace",
			base.with(machine{"proc/self/status": "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n",
				"proc/self/uid_map": "0 100000 65536\n"}), 1,
			"RLIMIT_NPROC of user 0 allows 64 threads, of which 300 exist"},
		{
			"CAP_SYS_RESOURCE",
			base.with(machine{"proc/self/status": "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000001000000\n"}), 1000,
			""},
		{"a control group of version 2, above the own", base.with(machine{
			"sys/fs/cgroup/user.slice/session-1.scope/pids.max":     "max\n",
			"sys/fs/cgroup/user.slice/session-1.scope/pids.current": "9\n",
			"sys/fs/cgroup/user.slice/pids.max":                     "20\n",
			"sys/fs/cgroup/user.slice/pids.current":                 "12\n"}), 9,
			"pids.max of the control group /sys/fs/cgroup/user.slice allows 20 threads, of which 12 exist"},
		{
			"a control group with room",
			base.with(machine{"sys/fs/cgroup/user.slice/pids.max": "20\n",
				"sys/fs/cgroup/user.slice/pids.current": "12\n"}), 8, ""},
		{"version 1", base.with(machine{"proc/self/cgroup": "8:pids:/job\n", "proc/self/mountinfo": v1,
			"sys/fs/cgroup/pids/job/pids.max": "10\n", "sys/fs/cgroup/pids/job/pids.current": "8\n"}), 3,
			"pids.max of the control group /sys/fs/cgroup/pids/job allows 10 threads, of which 8 exist"},
		{
			"the tighter of two",
			base.with(machine{"sys/fs/cgroup/user.slice/pids.max": "20\n",
				"sys/fs/cgroup/user.slice/pids.current": "12\n"}), 40,
			"pids.max of the control group /sys/fs/cgroup/user.slice allows 20 threads, of which 12 exist"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			limit, refused := threadsRefused(c.files.fs(), c.more)
			got := ""
			if refused {
				got = limit.String()
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	if got := ownThreads(base.fs()); got != 8 {
		t.Errorf("got %d threads of its own, want 8", got)
	}
}
