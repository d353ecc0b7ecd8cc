package trace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The following functions read event files independently of the package. They compute checksums bit by bit, and parse
// messages field by field.

func crc32c(data []byte) uint32 {
	crc := ^uint32(0)
	for _, b := range data {
		crc ^= uint32(b)
		for range 8 {
			if crc&1 != 0 {
				crc = crc>>1 ^ 0x82f63b78
			} else {
				crc >>= 1
			}
		}
	}
	return ^crc
}

func mask(crc uint32) uint32 { return (crc>>15 | crc<<17) + 0xa282ead8 }

// fields contains the fields of a message, by number. Nested messages and strings are bytes.
type fields struct {
	numbers map[int]uint64
	texts   map[int][]string
}

func parse(t *testing.T, message string) fields {
	t.Helper()
	f, b := fields{map[int]uint64{}, map[int][]string{}}, []byte(message)
	for len(b) > 0 {
		key, n := binary.Uvarint(b)
		b = b[n:]
		number := int(key >> 3)
		switch key & 7 {
		case 0:
			v, n := binary.Uvarint(b)
			f.numbers[number], b = v, b[n:]
		case 1:
			f.numbers[number], b = binary.LittleEndian.Uint64(b), b[8:]
		case 5:
			f.numbers[number], b = uint64(binary.LittleEndian.Uint32(b)), b[4:]
		case 2:
			size, n := binary.Uvarint(b)
			f.texts[number], b = append(f.texts[number], string(b[n:n+int(size)])), b[n+int(size):]
		default:
			t.Fatalf("field %d has wire type %d", number, key&7)
		}
	}
	return f
}

// readEvents returns the messages of a file, and checks their checksums.
func readEvents(t *testing.T, path string) []fields {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var events []fields
	for len(b) > 0 {
		if len(b) < 16 {
			t.Fatalf("%s: %d bytes behind the last record", path, len(b))
		}
		n := binary.LittleEndian.Uint64(b)
		if got, want := binary.LittleEndian.Uint32(b[8:]), mask(crc32c(b[:8])); got != want {
			t.Fatalf("%s: checksum of a length: got %08x, want %08x", path, got, want)
		}
		data := b[12 : 12+n]
		if got, want := binary.LittleEndian.Uint32(b[12+n:]), mask(crc32c(data)); got != want {
			t.Fatalf("%s: checksum of an event: got %08x, want %08x", path, got, want)
		}
		events, b = append(events, parse(t, string(data))), b[16+n:]
	}
	return events
}

// point is a scalar from an event file.
type point struct {
	step  int64
	tag   string
	value float32
}

// readPoints returns the scalars of all files in a folder, in TensorBoard's reading order.
func readPoints(t *testing.T, dir string) (points []point) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*tfevents*"))
	if err != nil || len(names) == 0 {
		t.Fatalf("event files: %v, %v", names, err)
	}
	slices.Sort(names)
	for _, name := range names {
		events := readEvents(t, name)
		if first := events[0].texts[3]; len(first) != 1 || first[0] != "brain.Event:2" {
			t.Errorf("%s begins with version %q, want brain.Event:2", name, first)
		}
		for _, e := range events {
			for _, summary := range e.texts[5] {
				for _, v := range parse(t, summary).texts[1] {
					if value := parse(t, v); value.texts[8] == nil {
						points = append(points, point{int64(e.numbers[2]), value.texts[1][0],
							math.Float32frombits(uint32(value.numbers[2]))})
					}
				}
			}
		}
	}
	return points
}

func openBoard(t *testing.T, dir string, o BoardOptions) *Board {
	t.Helper()
	b, err := OpenBoard(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func addSteps(b *Board, from, to int64) {
	for step := from; step <= to; step++ {
		b.Scalars(step, time.Unix(1_800_000_000+step, 250_000_000),
			[]Scalar{{"train/loss", 1 / float64(step)}, {"train/accuracy", float64(step)}})
	}
}

func closeBoard(t *testing.T, b *Board) {
	t.Helper()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestTheChecksumIsCastagnolis(t *testing.T) {
	if got := crc32c([]byte("123456789")); got != 0xe3069283 { // the test value of RFC 3720
		t.Fatalf("the test's own checksum: got %08x", got)
	}
	if got, want := masked([]byte("123456789")), mask(0xe3069283); got != want {
		t.Errorf("got %08x, want %08x", got, want)
	}
}

func TestScalarsAreReadAsTheyWereWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tensorboard")
	b := openBoard(t, dir, BoardOptions{Fresh: true})
	addSteps(b, 1, 300)
	b.Scalars(301, time.Now(), []Scalar{{"train/loss", math.NaN()}, {strings.Repeat("long/", 60), -1e30}})
	closeBoard(t, b)
	points := readPoints(t, dir)
	if len(points) != 602 {
		t.Fatalf("got %d scalars, want 602", len(points))
	}
	for i, p := range points[:600] {
		step := int64(i/2 + 1)
		want := point{step, "train/loss", float32(1 / float64(step))}
		if i%2 == 1 {
			want = point{step, "train/accuracy", float32(step)}
		}
		if p != want {
			t.Fatalf("scalar %d: got %v, want %v", i, p, want)
		}
	}
	if p := points[600]; p.step != 301 || p.value == p.value {
		t.Errorf("got %v, want a loss that is not a number at step 301", p)
	}
	if p := points[601]; len(p.tag) != 300 || p.value != -1e30 {
		t.Errorf("got %v, want a tag of 300 bytes", p)
	}
}

func TestTextAndSettingsCarryTheirPlugins(t *testing.T) {
	dir := t.TempDir()
	b := openBoard(t, dir, BoardOptions{})
	at := time.Unix(1_800_000_000, 0)
	b.Text(1, at, "config", "    lr = 0.1")
	b.Settings(1, at, "run", []Setting{{"lr", 0.1}, {"model", "resnet50"}, {"flip", true}})
	closeBoard(t, b)
	names, _ := eventFiles(dir)
	events := readEvents(t, filepath.Join(dir, names[0]))
	value := func(i int) fields { return parse(t, parse(t, events[i].texts[5][0]).texts[1][0]) }
	plugin := func(v fields) fields { return parse(t, parse(t, v.texts[9][0]).texts[1][0]) }
	text := value(1)
	if p := plugin(text); text.texts[1][0] != "config" || p.texts[1][0] != "text" ||
		parse(t, text.texts[9][0]).numbers[4] != 2 {
		t.Errorf("text: got %v of plugin %v", text, p)
	}
	if tensor := parse(t, text.texts[8][0]); tensor.numbers[1] != 7 || tensor.texts[8][0] != "    lr = 0.1" {
		t.Errorf("text: got tensor %v", tensor)
	}
	p := plugin(value(2))
	if p.texts[1][0] != "hparams" || value(2).texts[1][0] != "_hparams_/session_start_info" {
		t.Fatalf("settings: got %v", p)
	}
	start := parse(t, parse(t, p.texts[2][0]).texts[3][0])
	got := map[string]fields{}
	for _, entry := range start.texts[1] {
		e := parse(t, entry)
		got[e.texts[1][0]] = parse(t, e.texts[2][0])
	}
	if len(got) != 3 || math.Float64frombits(got["lr"].numbers[2]) != 0.1 || got["model"].texts[3][0] != "resnet50" ||
		got["flip"].numbers[4] != 1 {
		t.Errorf("settings: got %v", got)
	}
}

// stepsOf returns the steps of one tag. Each step must appear once, in ascending order.
func stepsOf(t *testing.T, dir string) (steps []int64) {
	t.Helper()
	for _, p := range readPoints(t, dir) {
		if p.tag == "train/loss" {
			steps = append(steps, p.step)
		}
	}
	return steps
}

func upTo(n int64) (steps []int64) {
	for s := int64(1); s <= n; s++ {
		steps = append(steps, s)
	}
	return steps
}

func TestAResumedRunHasEveryStepOnce(t *testing.T) {
	dir := t.TempDir()
	for _, process := range []struct{ keep, to int64 }{{0, 50}, {30, 40}, {30, 80}, {80, 81}, {10, 60}} {
		b := openBoard(t, dir, BoardOptions{Keep: process.keep})
		addSteps(b, process.keep+1, process.to)
		closeBoard(t, b)
		if got := stepsOf(t, dir); !slices.Equal(got, upTo(process.to)) {
			t.Fatalf("after going on from step %d to %d: got steps %v", process.keep, process.to, got)
		}
	}
}

func TestARunThatGoesBackHasEveryStepOnce(t *testing.T) {
	dir := t.TempDir()
	b := openBoard(t, dir, BoardOptions{})
	addSteps(b, 1, 20)
	if err := b.Restart(12); err != nil {
		t.Fatal(err)
	}
	addSteps(b, 13, 25)
	closeBoard(t, b)
	if got := stepsOf(t, dir); !slices.Equal(got, upTo(25)) {
		t.Errorf("got steps %v", got)
	}
	names, _ := eventFiles(dir)
	second := readEvents(t, filepath.Join(dir, names[1]))
	if log := second[1]; log.numbers[2] != 13 || parse(t, log.texts[7][0]).numbers[1] != 1 {
		t.Errorf("the second file begins with %v, want SessionLog START of step 13", log)
	}
}

func TestAFileThatWasCutAnywhereIsMended(t *testing.T) {
	dir := t.TempDir()
	b := openBoard(t, dir, BoardOptions{})
	addSteps(b, 1, 4)
	closeBoard(t, b)
	names, _ := eventFiles(dir)
	whole, err := os.ReadFile(filepath.Join(dir, names[0]))
	if err != nil {
		t.Fatal(err)
	}
	first := 16 + int(binary.LittleEndian.Uint64(whole)) // end of the first event, which contains the version
	ends := map[int]bool{}                               // positions of the ends of records
	for at := first; at < len(whole); {
		at += 16 + int(binary.LittleEndian.Uint64(whole[at:]))
		ends[at] = true
	}
	for cut, last := first, first; cut < len(whole); cut++ {
		if ends[cut] {
			last = cut
		}
		if got, err := soundUpTo(bytes.NewReader(whole[:cut]), 4); err != nil || got != int64(last) {
			t.Fatalf("cut at byte %d: got %d sound bytes and %v, want %d", cut, got, err, last)
		}
		flipped := slices.Clone(whole)
		flipped[cut] ^= 0x10
		if got, err := soundUpTo(bytes.NewReader(flipped), 4); err != nil || got != int64(last) {
			t.Fatalf("byte %d damaged: got %d sound bytes and %v, want %d", cut, got, err, last)
		}
	}
	for _, cut := range []int{first + 1, len(whole) - 1} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, names[0]), whole[:cut], 0o644); err != nil {
			t.Fatal(err)
		}
		b := openBoard(t, dir, BoardOptions{Keep: 4})
		addSteps(b, 5, 6)
		closeBoard(t, b)
		got := stepsOf(t, dir) // fails the test if a record is incomplete
		if !slices.IsSorted(got) || !slices.Equal(got[len(got)-2:], []int64{5, 6}) {
			t.Fatalf("cut at byte %d: got steps %v", cut, got)
		}
	}
}

func TestAFreshRunMovesOthersAside(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tensorboard")
	for range 3 {
		b := openBoard(t, dir, BoardOptions{Fresh: true})
		addSteps(b, 1, 3)
		closeBoard(t, b)
	}
	for _, d := range []string{dir, dir + ".1", dir + ".2"} {
		if got := stepsOf(t, d); !slices.Equal(got, upTo(3)) {
			t.Errorf("%s: got steps %v", d, got)
		}
	}
}

// Until a restart succeeds, the board must write nothing to the truncated files, and must keep no unused file open.
func TestARestartThatFailsIsTriedAgain(t *testing.T) {
	dir := t.TempDir()
	const far = 9_000_000_000 // in seconds, so that the name of the next file does not depend on the clock
	b := openBoard(t, dir, BoardOptions{})
	addSteps(b, 1, 5)
	closeBoard(t, b)
	if err := os.Rename(filepath.Join(dir, b.name),
		filepath.Join(dir, fmt.Sprintf("%s%d.host.1.0", eventFileMark, int64(far)))); err != nil {
		t.Fatal(err)
	}
	b = openBoard(t, dir, BoardOptions{Keep: 5})
	addSteps(b, 6, 15)
	if err := b.Flush(); err != nil {
		t.Fatal(err)
	}
	addSteps(b, 16, 20) // these steps are only in memory
	next := ""
	held(b, func() {
		_, rest, _ := strings.Cut(strings.TrimPrefix(b.name, eventFileMark), ".")
		next = filepath.Join(dir, fmt.Sprintf("%s%d.%s%d", eventFileMark, int64(far+2), strings.TrimSuffix(rest, "0"),
			b.serial))
	})
	if err := os.Mkdir(next, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := b.Restart(12); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("got %v, want that the name of the next file is taken", err)
	}
	addSteps(b, 13, 25)
	if err := b.Flush(); err != nil {
		t.Error(err)
	}
	// The last write to the old file fails, and the board opens another file.
	held(b, func() { b.file = &fullDisk{b.file, 1} })
	addSteps(b, 26, 30)
	if err := b.Flush(); err == nil {
		t.Error("a full disk took events")
	}
	if err := b.Restart(27); err != nil {
		t.Error(err)
	}
	addSteps(b, 28, 40)
	closeBoard(t, b)
	if err := os.Remove(next); err != nil {
		t.Fatal(err)
	}
	if got := stepsOf(t, dir); !slices.Equal(got, upTo(40)) {
		t.Errorf("got steps %v, want each up to 40 once", got)
	}
}

// held calls do while the board writes no events.
func held(b *Board, do func()) {
	_ = b.spool.Hold(func(func() error) error { do(); return nil })
}

// fullDisk is a file that accepts the first bytes of a write, and refuses the rest. After a given number of writes, it
// accepts all bytes.
type fullDisk struct {
	boardFile
	refusals int
}

func (f *fullDisk) WriteAt(p []byte, offset int64) (int, error) {
	if f.refusals == 0 || len(p) == 0 {
		return f.boardFile.WriteAt(p, offset)
	}
	f.refusals--
	n, _ := f.boardFile.WriteAt(p[:len(p)/2], offset)
	return n, errors.New("no space left on device")
}

func TestEventsWaitForAFullDisk(t *testing.T) {
	dir := t.TempDir()
	b := openBoard(t, dir, BoardOptions{})
	held(b, func() { b.file = &fullDisk{b.file, 3} })
	for i := range int64(5) {
		addSteps(b, 10*i+1, 10*i+10)
		if err := b.Flush(); (err != nil) != (i < 3) {
			t.Errorf("flush %d: %v", i, err)
		}
	}
	closeBoard(t, b)
	if got := stepsOf(t, dir); !slices.Equal(got, upTo(50)) {
		t.Errorf("got steps %v", got)
	}
}

func TestScalarsAllocateNothing(t *testing.T) {
	b := openBoard(t, t.TempDir(), BoardOptions{})
	values := benchmarkScalars()
	at := time.Now()
	for range 3 { // until both buffers have their final size
		for range 200 {
			b.Scalars(1, at, values)
		}
		b.Flush()
	}
	if n := testing.AllocsPerRun(100, func() { b.Scalars(2, at, values) }); n != 0 {
		t.Errorf("got %v allocations, want none", n)
	}
}

func benchmarkScalars() (values []Scalar) {
	for i := range 24 {
		values = append(values, Scalar{fmt.Sprintf("ranks/share/rank_%d", i), float64(i)})
	}
	return values
}

func BenchmarkScalars(b *testing.B) {
	board, err := OpenBoard(b.TempDir(), BoardOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer board.Close()
	values, at := benchmarkScalars(), time.Now()
	for i := range b.N {
		board.Scalars(int64(i), at, values)
	}
	b.ReportMetric(float64(len(values)), "scalars/op")
}
