package conformance

import "runtime"

// TB contains the methods that a check may call. *testing.T, *testing.B and [T] implement it.
type TB interface {
	Helper()
	Name() string
	Log(args ...any)
	Logf(format string, args ...any)
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Fail()
	FailNow()
	Failed() bool
	Skip(args ...any)
	Skipf(format string, args ...any)
	Skipped() bool
	Cleanup(f func())
	TempDir() string
}

// T is a TB that can run sub-checks.
type T interface {
	TB
	// Run runs a sub-check. It returns false if the sub-check failed.
	Run(name string, f func(T)) bool
}

// Go adapts a *testing.T to a T.
func Go[S interface {
	TB
	Run(name string, f func(S)) bool
}](t S) T {
	return goTest{t, func(name string, f func(T)) bool { return t.Run(name, func(sub S) { f(Go(sub)) }) }}
}

// goTest wraps a *testing.T as an interface, because the released program does not import package testing.
type goTest struct {
	TB
	run func(name string, f func(T)) bool
}

// Run implements T.
func (t goTest) Run(name string, f func(T)) bool { return t.run(name, f) }

// Brief returns t without the checks that call Long. These checks are skipped, with why as the reason.
func Brief(t T, why string) T { return brief{t, why} }

type brief struct {
	T
	why string
}

// Run implements T.
func (t brief) Run(name string, f func(T)) bool {
	return t.T.Run(name, func(sub T) { f(brief{sub, t.why}) })
}

// Long marks a check that takes seconds. The check must call it first. Long skips the check with Options.Short or
// Brief.
func Long(t TB) {
	if b, ok := t.(brief); ok {
		t.Skip(b.why)
	}
	if n, ok := t.(*node); ok && n.Short {
		t.Skip("skipped by --short, because it takes several seconds")
	}
}

// AllocsPerRun returns the mean number of heap allocations of f, rounded down, over runs calls. A first call is not
// counted.
func AllocsPerRun(runs int, f func()) float64 {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	f()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range runs {
		f()
	}
	runtime.ReadMemStats(&after)
	return float64((after.Mallocs - before.Mallocs) / uint64(runs))
}
