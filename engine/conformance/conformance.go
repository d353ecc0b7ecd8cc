package conformance

import "runtime"

// TB is what a check says and asks for. *testing.T, *testing.B and [T] are such.
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

// T is a TB that has checks within it.
type T interface {
	TB
	// Run runs a check and reports whether it has not failed.
	Run(name string, f func(T)) bool
}

// Go makes a T of a *testing.T.
func Go[S interface {
	TB
	Run(name string, f func(S)) bool
}](t S) T {
	return goTest{t, func(name string, f func(T)) bool { return t.Run(name, func(sub S) { f(Go(sub)) }) }}
}

// goTest is a *testing.T. Package testing is not imported for it: the program is no test.
type goTest struct {
	TB
	run func(name string, f func(T)) bool
}

// Run implements T.
func (t goTest) Run(name string, f func(T)) bool { return t.run(name, f) }

// Brief is t without the checks that take seconds.
func Brief(t T) T { return brief{t} }

type brief struct{ T }

// Run implements T.
func (t brief) Run(name string, f func(T)) bool { return t.T.Run(name, func(sub T) { f(brief{sub}) }) }

// Long is called first by a check that takes seconds: it is skipped where Options.Short or Brief asks for that.
func Long(t TB) {
	if _, ok := t.(brief); ok {
		t.Skip("takes long, and --short skips it")
	}
	if n, ok := t.(*node); ok && n.Short {
		t.Skip("takes long, and --short skips it")
	}
}

// AllocsPerRun is the mean number of allocations of f on Go's heap, rounded down, over runs calls after one that is not counted.
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
