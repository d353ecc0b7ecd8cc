package memory

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
)

const mib = 1 << 20

func files(texts map[string]string) fstest.MapFS {
	root := fstest.MapFS{}
	for name, text := range texts {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return root
}

func TestAccountAgainstItsLimits(t *testing.T) {
	device, host := []Part{{"activations", 60 * mib}, {"weights", 10 * mib}}, []Part{{"program", 20 * mib}}
	optional := []Part{{"copy", 8 * mib}, {"cache", 100 * mib}}
	for _, c := range []struct {
		name    string
		account Account
		fits    bool
		left    int64
		granted [2]int64
		short   string // part of the explanation if it does not fit
	}{
		{"no limits", Account{Unified: true}, true, 0, [2]int64{8 * mib, 100 * mib}, ""},
		{"host memory exactly", Account{Unified: true, Limit: Limit{Bytes: 90 * mib, Source: "x"}},
			true, 0, [2]int64{0, 0}, ""},
		{"a byte too few", Account{Unified: true, Limit: Limit{Bytes: 90*mib - 1, Source: "memory.max of /job"}},
			false, 0, [2]int64{},
			"90.0 MiB of memory, but this process may use only 90.0 MiB (memory.max of /job): activations 60.0 MiB, weights 10.0 MiB, program 20.0 MiB"},
		{"not enough for the copy", Account{Unified: true, Limit: Limit{Bytes: 97 * mib, Source: "x"}}, true, 7 * mib,
			[2]int64{0, 7 * mib}, ""},
		{"enough for the copy", Account{Unified: true, Limit: Limit{Bytes: 100 * mib, Source: "x"}}, true, 10 * mib,
			[2]int64{8 * mib, 2 * mib}, ""},
		{"two memories", Account{DeviceLimit: 70 * mib, Limit: Limit{Bytes: 20 * mib, Source: "x"}},
			true, 0, [2]int64{}, ""},
		{"device too small", Account{DeviceLimit: 69 * mib, Limit: Limit{Bytes: 200 * mib, Source: "x"}},
			false, 180 * mib,
			[2]int64{8 * mib, 100 * mib},
			"70.0 MiB of device memory, but the rank may use only 69.0 MiB: activations 60.0 MiB, weights 10.0 MiB"},
		{"host too small", Account{DeviceLimit: 70 * mib, Limit: Limit{Bytes: 19 * mib, Source: "RLIMIT_AS"}},
			false, 0, [2]int64{},
			"20.0 MiB of memory, but this process may use only 19.0 MiB (RLIMIT_AS): program 20.0 MiB"},
	} {
		c.account.Device, c.account.Host, c.account.Optional = device, host, optional
		if got := c.account.Fits(); got != c.fits {
			t.Errorf("%s: fits %v, want %v", c.name, got, c.fits)
		}
		if left, _ := c.account.Left(); left != c.left {
			t.Errorf("%s: %d bytes are left, want %d", c.name, left, c.left)
		}
		granted := c.account.Grant("copy").Optional
		if granted[0].Bytes != c.granted[0] || granted[1].Bytes != c.granted[1] {
			t.Errorf("%s: granted %v, want %v", c.name, granted, c.granted)
		}
		if c.short != "" && c.account.Short() != c.short {
			t.Errorf("%s: got %q, want %q", c.name, c.account.Short(), c.short)
		}
	}
}

// status is proc/self/status of a process with 40 MiB of private pages, 2 MiB of shared pages, 1 MiB of page tables and
// 64 threads with 1 MiB of kernel stacks.
const status = "Name:\tx\nVmSize:\t  204800 kB\nVmData:\t  102400 kB\nVmPTE:\t    1024 kB\nRssAnon:\t   40960 kB\nRssFile:\t   30720 kB\nRssShmem:\t    2048 kB\nThreads:\t64\n"

const statusHolds = 44 * mib // of status

func TestLimitIsTheSmallest(t *testing.T) {
	const v2 = "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
	const v1 = "32 24 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
	base := map[string]string{"proc/self/status": status, "proc/7/status": status, "proc/7/cgroup": "0::/a/job/below\n"}
	group := func(mibs int64, ranks int, source string) Limit {
		return Limit{Bytes: mibs * mib, Source: source, Ranks: ranks}
	}
	with := func(lists ...map[string]string) map[string]string {
		all := map[string]string{}
		for _, list := range append([]map[string]string{base}, lists...) {
			for name, text := range list {
				all[name] = text
			}
		}
		return all
	}
	job := with(map[string]string{"proc/self/mountinfo": v2, "proc/self/cgroup": "0::/a/job\n",
		"sys/fs/cgroup/a/memory.max":      "max\n",
		"sys/fs/cgroup/a/job/memory.max":  "1073741824\n",
		"sys/fs/cgroup/a/job/memory.stat": "anon 125829120\nfile 900000000\nshmem 4194304\nkernel 12582912\nslab_reclaimable 4194304\n",
	}) // 120 + 4 + 12 - 4 = 132 MiB are used: 88 MiB by two ranks, 44 MiB by others
	one, two := Sharers{}, Sharers{PIDs: []int{7}}
	for _, c := range []struct {
		name    string
		files   map[string]string
		sharers Sharers
		want    Limit
	}{
		{"nothing known", nil, one, Limit{}},
		{"group of one rank", job, one, group(1024-132+44, 1, "memory.max of /sys/fs/cgroup/a/job")},
		{"two ranks divide a group", job, two, group((1024-44)/2, 2, "memory.max of /sys/fs/cgroup/a/job")},
		{"a process that is still to start", job, Sharers{PIDs: []int{7}, Others: 10 * mib},
			group((1024-54)/2, 2, "memory.max of /sys/fs/cgroup/a/job")},
		{"a rank that is still to start", job, Sharers{Coming: 1},
			group(512-44, 2, "memory.max of /sys/fs/cgroup/a/job")},
		{"two ranks with groups of their own", with(job, map[string]string{"proc/7/cgroup": "0::/a/other\n"}), two,
			group(1024-88, 1, "memory.max of /sys/fs/cgroup/a/job")},
		{"a name that begins alike", with(job, map[string]string{"proc/7/cgroup": "0::/a/job2\n"}), two,
			group(1024-88, 1, "memory.max of /sys/fs/cgroup/a/job")},
		{"a rank in another namespace of processes", job, Sharers{PIDs: []int{Hidden}},
			group(1024-88, 1, "memory.max of /sys/fs/cgroup/a/job")},
		{"groups of their own below a shared limit", with(job, map[string]string{"proc/7/cgroup": "0::/a/other\n",
			"sys/fs/cgroup/a/memory.max":  "536870912\n",
			"sys/fs/cgroup/a/memory.stat": "anon 92274688\n"}), two,
			group(256, 2, "memory.max of /sys/fs/cgroup/a")},
		{"a parent has less left", with(map[string]string{"proc/self/mountinfo": v2, "proc/self/cgroup": "0::/a/job\n",
			"sys/fs/cgroup/a/memory.max":     "536870912\n",
			"sys/fs/cgroup/a/memory.high":    "max\n",
			"sys/fs/cgroup/a/memory.stat":    "anon 46137344\nshmem 0\nkernel 0\n",
			"sys/fs/cgroup/a/job/memory.max": "1073741824\n",
		}), one, group(512, 1, "memory.max of /sys/fs/cgroup/a")},
		{"memory.high", with(map[string]string{"proc/self/mountinfo": v2, "proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "1073741824\n", "sys/fs/cgroup/memory.high": "268435456\n",
		}), one, group(256, 1, "memory.high of /sys/fs/cgroup")},
		{"version 1", with(map[string]string{"proc/self/mountinfo": v1, "proc/self/cgroup": "4:memory:/job\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":          "9223372036854771712\n",
			"sys/fs/cgroup/memory/job/memory.limit_in_bytes":      "536870912\n",
			"sys/fs/cgroup/memory/job/memory.stat":                "cache 9\nrss 1\ntotal_rss 50331648\ntotal_shmem 2097152\n",
			"sys/fs/cgroup/memory/job/memory.kmem.usage_in_bytes": "402653184\n", // caches of the file system,
		}), one, group(512-50+42, 1, "memory.limit_in_bytes of /sys/fs/cgroup/memory/job")},
		{"address space", with(map[string]string{"proc/self/limits": "Limit   Soft Limit   Hard Limit   Units\n" +
			"Max data size             unlimited            unlimited            bytes\n" +
			"Max address space         1073741824           unlimited            bytes\n"}), one,
			Limit{Bytes: (1024-200-40-24-64-8*2-512)*mib + statusHolds, Source: "RLIMIT_AS", Ranks: 1, Addresses: true,
				Flag: "-v", Excluded: (200+40+24+64+8*2+512)*mib - statusHolds}},
		{"data", with(map[string]string{"proc/self/limits": "Max data size   536870912   unlimited   bytes\n"}), one,
			Limit{Bytes: (512-100-40-24-8*2)*mib + statusHolds, Source: "RLIMIT_DATA", Ranks: 1, Addresses: true,
				Flag: "-d", Excluded: (100+40+24+8*2)*mib - statusHolds}},
		{"data that is all reserved", with(map[string]string{"proc/self/limits": "Max data size   104857600   unlimited   bytes\n"}),
			one, Limit{Bytes: 1, Source: "RLIMIT_DATA", Ranks: 1, Addresses: true, Flag: "-d",
				Excluded: (100+40+24+8*2)*mib - statusHolds}},
		{"the machine", with(map[string]string{"proc/meminfo": "MemTotal: 8388608 kB\nMemAvailable: 1048576 kB\nAnonPages: 7340032 kB\n"}),
			two, group((1024+88)/2, 2, "memory available on the machine")},
		{"a machine with swap and other caches", with(map[string]string{"proc/meminfo": "MemTotal: 8388608 kB\nMemAvailable: 1048576 kB\nAnonPages: 4194304 kB\nShmem: 1048576 kB\nSwapFree: 2097152 kB\n"}),
			two, Limit{Bytes: (1024 + 88) / 2 * mib, Source: "memory available on the machine", Ranks: 2,
				Hard: (8192 - 5120 + 2048 + 88) / 2 * mib}},
		{"swap that a control group forbids", with(job, map[string]string{"proc/meminfo": "MemTotal: 8388608 kB\nMemAvailable: 262144 kB\nAnonPages: 4194304 kB\n"}),
			one, Limit{Bytes: (256 + 44) * mib, Source: "memory available on the machine", Ranks: 1,
				Hard: (1024 - 88) * mib}},
	} {
		if got := ReadLimit(files(c.files), c.sharers); got != c.want {
			t.Errorf("%s: got %d MiB (%s), want %d MiB (%s)", c.name, got.Bytes/mib, got.Source, c.want.Bytes/mib,
				c.want.Source)
		}
	}
}

func TestAddressesOfTheProcess(t *testing.T) {
	limits := "Max data size 209715200 unlimited bytes\nMax address space 314572800 unlimited bytes\n"
	root := files(map[string]string{"proc/self/status": status, "proc/self/limits": limits})
	want := Addresses{Source: "RLIMIT_DATA", Flag: "-d", Limit: 200 * mib, Held: 100 * mib, // both have 100 MiB left
		Later: HeapSpread + KernelBytes + unknownThreads*unlimitedStack}
	if got, limited := ReadAddresses(root); !limited || got.Left() != want.Left() || got.Limit-got.Held != 100*mib {
		t.Errorf("got %+v, %v, want %+v", got, limited, want)
	}
	root = files(map[string]string{"proc/self/status": status,
		"proc/self/limits": "Max data size 209715200 unlimited bytes\nMax address space unlimited unlimited bytes\n"})
	if got, limited := ReadAddresses(root); !limited || got != want {
		t.Errorf("got %+v, %v, want %+v", got, limited, want)
	}
	if got, limited := ReadAddresses(files(map[string]string{"proc/self/status": status})); limited {
		t.Errorf("no limit: got %+v", got)
	}
	// 14 threads, of which 6 exist, with stacks of 8 MiB
	root = files(map[string]string{"proc/self/status": "VmSize: 204800 kB\nVmData: 102400 kB\nThreads: 6\n",
		"proc/self/limits": limits + "Max stack size 8388608 unlimited bytes\n"})
	list := ListAddresses(root, Own{Threads: 14, OneArena: true})
	if later := int64(128 * mib); len(list) != 2 || list[1].Later != later || list[0].Later != later+ArenaBytes {
		t.Errorf("got %+v, want 128 MiB of data later", list)
	}
	list = ListAddresses(root, Own{Threads: 14, OneArena: true, Stack: 2 * mib})
	if later := int64(80 * mib); list[1].Later != later || list[0].Later != later+ArenaBytes {
		t.Errorf("with small stacks: got %+v, want 80 MiB of data later", list)
	}
	// 1 GiB of addresses, of which 200 MiB are reserved, and 300 MiB of data, of which 100 MiB are reserved
	root = files(map[string]string{"proc/self/status": "VmSize: 204800 kB\nVmData: 102400 kB\nThreads: 14\n",
		"proc/self/limits": "Max data size 314572800 unlimited bytes\nMax address space 1073741824 unlimited bytes\n"})
	own := Own{Threads: 14, OneArena: true, Stack: 2 * mib}
	if got, limited := AddressesLeft(root, own); !limited || got != 200*mib-HeapSpread-KernelBytes {
		t.Errorf("got %d bytes left for data, %v, want 136 MiB", got, limited)
	}
	if _, limited := AddressesLeft(files(nil), own); limited {
		t.Error("no limit is set, but addresses are limited")
	}
}

// The advice names the limit with which an account fits exactly, and the next process may reserve more.
func TestARefusalNamesTheLimitThatIsEnough(t *testing.T) {
	const held = 100 * mib
	status := map[string]string{"proc/self/status": "VmSize: 204800 kB\nVmData: 102400 kB\nRssAnon: 40960 kB\nThreads: 6\n"}
	for _, tensors := range []bool{false, true} {
		limitOf := func(bytes int64) Limit {
			status["proc/self/limits"] = fmt.Sprintf("Max data size %d unlimited bytes\n", bytes)
			l, limited := ReadAddressLimit(files(status), Own{Threads: 6, Tensors: tensors})
			if !limited {
				t.Fatal("got no limit")
			}
			return l
		}
		account := Account{Unified: true, Host: []Part{{"program", 300 * mib}}, Limit: limitOf(held)}
		advice := account.Raise()
		var kib int64
		if _, err := fmt.Sscanf(advice[strings.Index(advice, "ulimit -d"):], "ulimit -d %d", &kib); err != nil {
			t.Fatalf("got %q, %v", advice, err)
		}
		account.Limit = limitOf(kib<<10 - account.Limit.Spread())
		if !account.Fits() || account.Raise() != "" {
			t.Errorf("tensors %v: with ulimit -d %d, the account does not fit: %s", tensors, kib, account.Short())
		}
		if account.Limit = limitOf(kib<<10 - account.Limit.Spread() - 2048); account.Fits() {
			t.Errorf("tensors %v: with 2 KiB less than ulimit -d %d, the account fits", tensors, kib)
		}
	}
	if got := (Account{Host: []Part{{"program", 2}}, Limit: Limit{Bytes: 1, Source: "memory.max"}}).Raise(); got != "" {
		t.Errorf("a control group: got %q", got)
	}
}

// The sum of reserved and later addresses does not depend on the place where the heap begins in its first arena.
func TestTheStartOfTheHeapDoesNotMatter(t *testing.T) {
	const base = 0x2226c0000000
	maps := func(before, used, arenas int64) []byte {
		at, end := base+before*mib, base+arenas*ArenaBytes
		return fmt.Appendf(nil, "00400000-00412000 r-xp 00000000 fe:00 9 /program\n%x-%x ---p 00000000 00:00 0\n"+
			"%x-%x rw-p 00000000 00:00 0\n%x-%x ---p 00000000 00:00 0\n7f7d4abef000-7f7d4b3ef000 rw-p 00000000 00:00 0\n",
			base, at, at, at+used*mib, at+used*mib, end)
	}
	for _, c := range []struct{ before, used, arenas, sum int64 }{
		{4, 8, 1, 2}, {50, 8, 1, 2}, {60, 8, 2, 2}, {4, 24, 1, 2}, {4, 25, 1, 3}, {60, 40, 2, 3},
	} {
		h := heapAround(maps(c.before, c.used, c.arenas), base+uint64(c.before*mib)+5)
		if h.reserved != c.arenas*ArenaBytes || h.reserved+h.later() != c.sum*ArenaBytes ||
			h.reserved-h.unused != c.used*mib {
			t.Errorf("%+v: got %+v and %d MiB later", c, h, h.later()/mib)
		}
	}
	if h := heapAround(maps(4, 8, 1), 5); h != (goHeap{}) || h.later() != ArenaBytes {
		t.Errorf("an address without a mapping: got %+v", h)
	}
	if h := readGoHeap(System()); h != (goHeap{}) && h.reserved%ArenaBytes != 0 {
		t.Errorf("this process: got %+v, want whole arenas", h)
	}
}

func TestPressureWarnsBeforeTheKernelActs(t *testing.T) {
	limited := func(used string, stalled string) map[string]string {
		return map[string]string{"proc/meminfo": "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n",
			"proc/self/mountinfo": "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "1073741824\n", "sys/fs/cgroup/memory.stat": "anon " + used + "\n",
			"sys/fs/cgroup/memory.pressure": "some avg10=50.00 avg60=1.00\nfull avg10=" + stalled + " avg60=0.50 total=9\n"}
	}
	const planned = 900 * mib
	for _, c := range []struct {
		name     string
		files    map[string]string
		resident int64
		near     bool
	}{
		{"half", limited("536870912", "0.00"), planned, false},
		{"96 %, as planned", limited("1030792151", "0.00"), planned, false},
		{"96 %, more than planned", limited("1030792151", "0.00"), 960 * mib, true},
		{"96 %, and all processes wait", limited("1030792151", "12.50"), planned, true},
		{"half, and all processes wait", limited("536870912", "12.50"), planned, false},
		{"99.5 %", limited("1068373114", "0.00"), planned, true},
		{"the machine",
			map[string]string{"proc/meminfo": "MemTotal: 1000000 kB\nMemAvailable: 5000 kB\n"}, planned, true},
	} {
		p, ok := NewGauge(files(c.files)).Pressure()
		if !ok || p.Near(c.resident, planned) != c.near {
			t.Errorf("%s: got %+v, near %v, want %v", c.name, p, !c.near, c.near)
		}
	}
	if p, ok := NewGauge(files(nil)).Pressure(); ok {
		t.Errorf("nothing known: got %+v", p)
	}
}

func TestResidentOfThisProcess(t *testing.T) {
	if got, known := Resident(files(map[string]string{"proc/self/status": status}), 0); got != statusHolds || !known {
		t.Errorf("got %d MiB, %v, want %d", got/mib, known, statusHolds/mib)
	}
	if got, known := Resident(files(nil), 0); known {
		t.Errorf("without proc: got %d bytes", got)
	}
	if got := (Account{Unified: true, Host: []Part{{"program", 2 << 30}, {"tiny", 5}}}).String(); got !=
		"2.00 GiB: program 2.00 GiB" || strings.Contains(got, "tiny") {
		t.Errorf("got %q", got)
	}
}

// countingFS counts how often a file is read.
type countingFS struct {
	fstest.MapFS
	reads map[string]int
}

func (c countingFS) ReadFile(name string) ([]byte, error) {
	c.reads[name]++
	return c.MapFS.ReadFile(name)
}

// The list of mounts of a machine with many containers is long.
func TestAGaugeReadsTheMountsOnce(t *testing.T) {
	root := countingFS{files(map[string]string{"proc/meminfo": "MemTotal: 8388608 kB\nMemAvailable: 8388608 kB\n",
		"proc/self/mountinfo": "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "proc/self/cgroup": "0::/\n",
		"sys/fs/cgroup/memory.high": "1073741824\n", "sys/fs/cgroup/memory.stat": "anon 5\n"}), map[string]int{}}
	gauge := NewGauge(root)
	for range 3 {
		if p, ok := gauge.Pressure(); !ok || p.Used != 5 || !p.Throttles() {
			t.Errorf("got %+v, want the use of a group that is throttled", p)
		}
	}
	if n := root.reads["proc/self/mountinfo"]; n != 1 || root.reads["sys/fs/cgroup/memory.stat"] != 3 {
		t.Errorf("got %d readings of the mounts", n)
	}
}
