package runtime

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

func mustOpen(t *testing.T, path string) (*Writer, Repair) {
	t.Helper()
	w, repair, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w, repair
}

func appendAll(w *Writer, iterations ...int64) {
	for _, i := range iterations {
		record := sample(i)
		w.Append(&record)
	}
}

// iterations reads a file with encoding/json, like a program that does not know the layout of its lines.
func iterations(t *testing.T, path string) []int64 {
	t.Helper()
	text, err := os.ReadFile(path)
	var records []Record
	if err == nil {
		err = json.Unmarshal(text, &records)
	}
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	list := []int64{}
	for _, record := range records {
		list = append(list, record.Iteration)
	}
	return list
}

func upTo(n int64) []int64 {
	list := []int64{}
	for i := int64(1); i <= n; i++ {
		list = append(list, i)
	}
	return list
}

func TestFileIsAnArrayFromTheBeginning(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName(0))
	w, repair := mustOpen(t, path)
	if repair != (Repair{}) {
		t.Errorf("fresh file: got %+v", repair)
	}
	if got := iterations(t, path); len(got) != 0 {
		t.Errorf("got %v", got)
	}
	appendAll(w, 1)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := iterations(t, path); !slices.Equal(got, upTo(1)) {
		t.Errorf("got %v", got)
	}
	appendAll(w, upTo(50)[1:]...)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	if got := iterations(t, path); !slices.Equal(got, upTo(50)) {
		t.Errorf("got %v", got)
	}
	w, repair = mustOpen(t, path)
	if want := (Repair{Records: 50}); repair != want {
		t.Errorf("reopened: got %+v, want %+v", repair, want)
	}
	appendAll(w, 51)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got := iterations(t, path); !slices.Equal(got, upTo(51)) {
		t.Errorf("got %v", got)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("left %v", entries)
	}
}

// faultyFile checks after each write that the file is a valid JSON array. It can simulate a full disk.
type faultyFile struct {
	*os.File
	t      *testing.T
	budget int // largest size of the file in bytes; 0: no limit
	writes int
}

func (f *faultyFile) WriteAt(p []byte, offset int64) (int, error) {
	f.writes++
	full := f.budget > 0 && offset+int64(len(p)) > int64(f.budget)
	if full {
		part := p[:max(0, f.budget-int(offset))]
		n, err := f.File.WriteAt(part, offset)
		return n, errors.Join(err, syscall.ENOSPC)
	}
	n, err := f.File.WriteAt(p, offset)
	if f.budget == 0 {
		iterations(f.t, f.Name())
		if len(p) > pageBytes {
			f.t.Errorf("a write of %d bytes, want at most %d", len(p), pageBytes)
		}
	}
	return n, err
}

// held calls do while the writer writes no records.
func held(w *Writer, do func()) {
	_ = w.spool.Hold(func(func() error) error { do(); return nil })
}

func TestArrayIsValidAfterEveryWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName(0))
	w, _ := mustOpen(t, path)
	checked := &faultyFile{File: w.file.(*os.File), t: t}
	held(w, func() { w.file = checked })
	next := int64(1)
	batches := []int{0, 1, 2, 3, 5, 8, 13, 21, 120, 1} // 120 records occupy several pages of memory
	for _, batch := range batches {
		for range batch {
			appendAll(w, next)
			next++
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if got := iterations(t, path); !slices.Equal(got, upTo(next-1)) {
		t.Errorf("got %d records, want %d in order", len(got), next-1)
	}
	if checked.writes < len(batches) {
		t.Errorf("%d writes were checked", checked.writes)
	}
}

func TestFullDiskKeepsTheArrayValidAndTheRecordsWaiting(t *testing.T) {
	for budget := 1500; budget < 6000; budget += 97 {
		path := filepath.Join(t.TempDir(), FileName(0))
		w, _ := mustOpen(t, path)
		limited := &faultyFile{File: w.file.(*os.File), t: t, budget: budget}
		held(w, func() { w.file = limited })
		appendAll(w, upTo(20)...)
		for range 2 {
			if err := w.Flush(); !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("%d bytes: got %v, want ENOSPC", budget, err)
			}
			got := iterations(t, path)
			if !slices.Equal(got, upTo(int64(len(got)))) {
				t.Fatalf("%d bytes: got %v", budget, got)
			}
		}
		appendAll(w, 21)
		limited.budget = 0
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if got := iterations(t, path); !slices.Equal(got, upTo(21)) {
			t.Fatalf("%d bytes, then room again: got %v", budget, got)
		}
	}
}

func TestFaultIsReportedOnceAndItsEndToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var reports []error
		path := filepath.Join(t.TempDir(), FileName(0))
		w, _, err := Open(path, Options{OnFault: func(err error) {
			mu.Lock()
			defer mu.Unlock()
			reports = append(reports, err)
		}})
		if err != nil {
			t.Fatal(err)
		}
		limited := &faultyFile{File: w.file.(*os.File), t: t, budget: 10}
		held(w, func() { w.file = limited })
		appendAll(w, 1)
		time.Sleep(5 * time.Second)
		held(w, func() { limited.budget = 0 })
		time.Sleep(5 * time.Second)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(reports) != 2 || !errors.Is(reports[0], syscall.ENOSPC) || reports[1] != nil {
			t.Errorf("got reports %v, want ENOSPC and nil", reports)
		}
	})
}

func TestRecordsThatNoDiskTakesAreCounted(t *testing.T) {
	w, _ := mustOpen(t, filepath.Join(t.TempDir(), FileName(0)))
	w.spool.Add(func(records []byte) []byte {
		return append(records, bytes.Repeat([]byte(",\n{}"), maxPendingBytes/4)...)
	})
	appendAll(w, 1, 2, 3)
	if got := w.Dropped(); got != 3 {
		t.Errorf("got %d dropped, want 3", got)
	}
	held(w, func() { w.spool.Change(func(records []byte) []byte { return records[:0] }) })
}

func TestRecordsReachTheFileWithoutAFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), FileName(0))
		w, _, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		appendAll(w, 1)
		time.Sleep(900 * time.Millisecond)
		if got := iterations(t, path); !slices.Equal(got, upTo(1)) {
			t.Errorf("after 0.9 s: got %v", got)
		}
		w.Close()
	})
}

func TestAppendAllocatesNothing(t *testing.T) {
	w, _ := mustOpen(t, filepath.Join(t.TempDir(), FileName(0)))
	record := sample(1)
	step := func() {
		for range 100 {
			record.Iteration++
			w.Append(&record)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	step()
	step() // after this step, both buffers have their final size
	if got := testing.AllocsPerRun(50, step); got != 0 {
		t.Errorf("got %v allocations for 100 records, want 0", got)
	}
}

func TestTruncateDropsWhatLiesBeyondACheckpoint(t *testing.T) {
	for _, keep := range []int64{-1, 0, 1, 9, 10, 99} {
		path := filepath.Join(t.TempDir(), FileName(0))
		w, _ := mustOpen(t, path)
		appendAll(w, upTo(10)...)
		if err := w.Truncate(keep); err != nil {
			t.Fatal(err)
		}
		want := upTo(min(10, max(0, keep)))
		if got := iterations(t, path); !slices.Equal(got, want) {
			t.Errorf("truncate to %d: got %v, want %v", keep, got, want)
		}
		appendAll(w, 77)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if got := iterations(t, path); !slices.Equal(got, append(want, 77)) {
			t.Errorf("truncate to %d and append: got %v", keep, got)
		}
	}
}

func TestOpenRepairsTruncations(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName(0))
	w, _ := mustOpen(t, path)
	appendAll(w, 1, 2, 3)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for size := range len(whole) {
		if atBoundary := bytes.ContainsAny(whole[max(0, size-3):size+1], "[{}]"); !atBoundary && size%61 != 0 {
			continue // all truncations within a record have the same effect
		}
		cut := filepath.Join(t.TempDir(), FileName(0))
		if err := os.WriteFile(cut, whole[:size], 0o644); err != nil {
			t.Fatal(err)
		}
		complete := int64(bytes.Count(whole[:size], []byte("}")))
		records, damaged, err := ReadMetrics(cut)
		if size > 0 && (err != nil || int64(len(records)) != complete || damaged != 1) {
			t.Fatalf("read %d bytes: got %d records, %d damaged, %v; want %d and 1", size, len(records), damaged, err,
				complete)
		}
		w, repair := mustOpen(t, cut)
		if repair.Records != complete || repair.Repaired != (size > 0) || repair.SetAside != "" {
			t.Fatalf("open %d bytes: got %+v, want %d records", size, repair, complete)
		}
		appendAll(w, complete+1)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if got := iterations(t, cut); !slices.Equal(got, upTo(complete+1)) {
			t.Fatalf("open %d bytes and append: got %v", size, got)
		}
	}
}

func TestDamageInTheMiddleCostsOnlyItsLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName(0))
	w, _ := mustOpen(t, path)
	appendAll(w, upTo(5)...)
	w.Close()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	line := bytes.Index(whole, []byte(`"iteration":3`))
	for name, damage := range map[string]func(b []byte) []byte{
		"zeros":       func(b []byte) []byte { clear(b[line : line+40]); return b },
		"long line":   func(b []byte) []byte { return slices.Insert(b, line, make([]byte, 3*maxLineBytes)...) },
		"not a value": func(b []byte) []byte { b[line] = 'x'; return b },
	} {
		if err := os.WriteFile(path, damage(slices.Clone(whole)), 0o644); err != nil {
			t.Fatal(err)
		}
		records, damaged, err := ReadMetrics(path)
		if err != nil || len(records) != 4 || damaged < 1 {
			t.Errorf("%s: read %d records, %d damaged, %v; want 4 records", name, len(records), damaged, err)
		}
		w, repair := mustOpen(t, path)
		if repair.Records != 4 || !repair.Repaired {
			t.Errorf("%s: got %+v", name, repair)
		}
		w.Close()
		if got := iterations(t, path); !slices.Equal(got, []int64{1, 2, 4, 5}) {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestAFreshFileKeepsEarlierOnes(t *testing.T) {
	name := FileName(0)
	torn := `[` + "\n" + `{"epoch":0,"iteration":1},` + "\n" + `{"epoch":0,"itera`
	for _, c := range []struct {
		name, before string
		taken        bool // a file path.1 already exists
		want         Repair
	}{
		{"nothing there", "", false, Repair{}},
		{"no records", "[\n]\n", false, Repair{}},
		{"another run's", "[\n{\"epoch\":0,\"iteration\":1}\n]\n", false, Repair{Earlier: name + ".1"}},
		{"another run's, and one before", "[\n{\"epoch\":0,\"iteration\":1}\n]\n", true, Repair{Earlier: name + ".2"}},
		{"another run's, torn", torn, false, Repair{Earlier: name + ".1"}},
		{"another layout", "{}", false, Repair{SetAside: name + ".1"}},
	} {
		path := filepath.Join(t.TempDir(), name)
		if c.before != "" {
			if err := os.WriteFile(path, []byte(c.before), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if c.taken {
			if err := os.WriteFile(path+".1", nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		w, repair, err := Open(path, Options{Fresh: true})
		if err != nil || repair != c.want {
			t.Fatalf("%s: got %+v, %v, want %+v", c.name, repair, err, c.want)
		}
		appendAll(w, 1)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if got := iterations(t, path); !slices.Equal(got, upTo(1)) {
			t.Errorf("%s: got %v", c.name, got)
		}
		if aside := repair.Earlier + repair.SetAside; aside != "" {
			if kept, err := os.ReadFile(filepath.Join(filepath.Dir(path), aside)); err != nil ||
				string(kept) != c.before {
				t.Errorf("%s: %s holds %q, %v, want the old file", c.name, aside, kept, err)
			}
		}
	}
}

func TestOtherLayoutsAreReadAndSetAside(t *testing.T) {
	text := func(step int64) string {
		line, err := json.Marshal(Record{Iteration: step, Telemetry: telemetry.Unknown()})
		if err != nil {
			t.Fatal(err)
		}
		return string(line)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, []byte("["+text(1)+","+text(2)+"]"), "", "  "); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"one line":     "[" + text(1) + "," + text(2) + "]",
		"many lines":   indented.String() + "\n",
		"no line ends": "[ " + text(1) + " , " + text(2) + " ]",
	} {
		path := filepath.Join(t.TempDir(), FileName(0))
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		records, damaged, err := ReadMetrics(path)
		if err != nil || len(records) != 2 || damaged != 0 {
			t.Errorf("%s: got %d records, %d damaged, %v", name, len(records), damaged, err)
		}
		w, repair := mustOpen(t, path)
		w.Close()
		kept, err := os.ReadFile(filepath.Join(filepath.Dir(path), "rank_0_metrics.json.1"))
		if repair.SetAside != "rank_0_metrics.json.1" || err != nil || string(kept) != text {
			t.Errorf("%s: got %+v, kept %q, %v", name, repair, kept, err)
		}
		if got := iterations(t, path); len(got) != 0 {
			t.Errorf("%s: got %v, want an empty array", name, got)
		}
	}
	if _, _, err := ReadMetrics(filepath.Join(t.TempDir(), "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent file: got %v", err)
	}
	path := filepath.Join(t.TempDir(), "object")
	if err := os.WriteFile(path, []byte(`{"a":1}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ReadMetrics(path); err == nil || !strings.Contains(err.Error(), "not a JSON array") {
		t.Errorf("an object: got %v", err)
	}
}

func TestRepairSaysWhatItDid(t *testing.T) {
	for want, repair := range map[string]Repair{
		"": {Records: 9},
		"9 records kept, 1 damaged lines removed": {Records: 9, Damaged: 1, Repaired: true},
		"the layout of the file differs from the layout that this program writes, so the file was renamed to rank_0_metrics.json.1": {
			SetAside: "rank_0_metrics.json.1"},
	} {
		if got := repair.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// The test kills a process that adds one record per millisecond. The file must then contain whole records, beginning
// with the first one. TestRecordsReachTheFileWithoutAFlush measures the time until records are in the file, with a fake
// clock. With HETERO_HOSTILE=1, this test measures it, too.
func TestAKillLosesTheNewestRecordsOnly(t *testing.T) {
	const variable = "HETERO_TEST_METRICS"
	if path := os.Getenv(variable); path != "" {
		w, _, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i := int64(1); ; i++ {
			record := sample(i)
			record.Timestamp = time.Now()
			w.Append(&record)
			fmt.Println(record.Timestamp.Format(time.RFC3339Nano))
			time.Sleep(time.Millisecond)
		}
	}
	late := 0 // number of trials in which the disk or a CPU was busy
	for trial := 0; trial < 2+late; trial++ {
		path := filepath.Join(t.TempDir(), FileName(0))
		writer := exec.Command(os.Args[0], "-test.run=^TestAKillLosesTheNewestRecordsOnly$")
		writer.Env = append(os.Environ(), variable+"="+path)
		var added bytes.Buffer
		writer.Stdout = &added
		if err := writer.Start(); err != nil {
			t.Fatal(err)
		}
		flushed := func() bool {
			info, err := os.Stat(path)
			return err == nil && info.Size() > 0
		}
		for end := time.Now().Add(time.Minute); !flushed() &&
			time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		}
		time.Sleep(time.Duration(700+trial*333) * time.Millisecond)
		writer.Process.Kill()
		writer.Wait()
		got := iterations(t, path)
		if !slices.Equal(got, upTo(int64(len(got)))) || len(got) == 0 {
			t.Fatalf("got %d records, want 1, 2, 3, …", len(got))
		}
		records, damaged, err := ReadMetrics(path)
		if err != nil || damaged != 0 {
			t.Fatalf("got %d damaged, %v", damaged, err)
		}
		whole := added.String()[:strings.LastIndexByte(added.String(), '\n')]
		last, err := time.Parse(time.RFC3339Nano, whole[strings.LastIndexByte(whole, '\n')+1:])
		if err != nil {
			t.Fatal(err)
		}
		lost := last.Sub(records[len(records)-1].Timestamp)
		t.Logf("trial %d: lost the records of the last %v", trial, lost)
		if needtest.Hostile.On() && lost > time.Second {
			if late++; late == 4 {
				t.Errorf("%d of %d trials lost more than one second of records, the last one %v", late, trial+1, lost)
				break
			}
		}
	}
}

// One goroutine reads while another one writes and truncates the file.
func TestReadersOfARunningExperimentGetWholeRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName(0))
	w, _ := mustOpen(t, path)
	stop := make(chan struct{})
	result := make(chan error)
	go func() {
		for {
			select {
			case <-stop:
				result <- nil
				return
			default:
			}
			records, damaged, err := ReadMetrics(path)
			if err != nil || damaged > 1 {
				result <- fmt.Errorf("%d damaged, %v", damaged, err)
				return
			}
			for i, record := range records {
				if record.Iteration != int64(i+1) {
					result <- fmt.Errorf("record %d has iteration %d", i, record.Iteration)
					return
				}
			}
		}
	}()
	next := int64(1)
	for round := range 60 {
		for range 20 {
			appendAll(w, next)
			next++
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if round%10 == 9 {
			next -= 50
			if err := w.Truncate(next - 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(stop)
	if err := <-result; err != nil {
		t.Error(err)
	}
}

func TestATimeBelowZeroDoesNotCostItsRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName(0))
	w, _ := mustOpen(t, path)
	record := sample(7)
	record.Forward, record.Bytes = -time.Millisecond, -1
	w.Append(&record)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if record.Forward != -time.Millisecond {
		t.Error("Append has changed the record of its caller")
	}
	var got []Record
	damaged, err := EachMetric(t.Context(), path, func(r *Record) { got = append(got, *r) })
	if err != nil || damaged != 0 || len(got) != 1 || got[0].Iteration != 7 || got[0].Forward != 0 ||
		got[0].Bytes != 0 || got[0].Backward != record.Backward {
		t.Errorf("got %+v, %d damaged records, %v, want the record with 0 in place of two values", got, damaged, err)
	}
}
