package cpu

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
)

func TestRealTimesAreStored(t *testing.T) {
	dev := choosing(t)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for _, op := range choices(256) {
		op.compile(t, dev)
	}
	_, lines := stored(t)
	if want := len(choices(256)); len(lines) != want {
		t.Fatalf("got %d choices, want %d", len(lines), want)
	}
	times := regexp.MustCompile(`^tiles \d+\.\d us, (onednn|rows) \d+\.\d us$`)
	for _, line := range lines {
		t.Logf("%s: %s (%s)", line[0], line[1], line[2])
		if !times.MatchString(line[2]) {
			t.Errorf("got the times %q, want two times", line[2])
		}
	}
}

// A damaged file must count as an empty file.
func TestADamagedFileOfChoicesIsReplaced(t *testing.T) {
	dev := choosing(t)
	op := choices(256)[0]
	for _, text := range []string{"", "hetero-train choices 0\n", "\x00\xff\n", "hetero-train choices 1\nhalf a line",
		strings.Repeat("x", 2<<20)} {
		t.Setenv("XDG_CACHE_HOME", t.TempDir())
		t.Setenv(kernelTimes, "tiles=20,onednn=10")
		op.compile(t, dev)
		path, want := stored(t)
		storeElsewhere(t, path, text)
		op.compile(t, dev)
		if _, got := stored(t); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("file %.30q: got %q, want %q", text, got, want)
		}
	}
}

// If there is no lock, two processes could time at the same time, and make different choices. The device must then use
// its best guess.
func TestWithoutALockTheBestGuessIsUsed(t *testing.T) {
	const test = "TestWithoutALockTheBestGuessIsUsed"
	dev := choosing(t)
	if fault := os.Getenv(faultVariable); fault != "" { // in a child process
		t.Setenv(kernelTimes, "tiles=20,onednn=10")
		if got := layoutOfWeight(t, dev, choices(256)[0]); got != "plain" {
			t.Errorf("%s: got the weight in layout %s, want that of the tiles, plain", fault, got)
		}
		if path, lines := stored(t); len(lines) != 0 {
			t.Errorf("%s: %s: got %q, want no choices", fault, path, lines)
		}
		want := map[string]string{"no-locks": "choices/lock: No locks available",
			"held": "another process has held "}[fault]
		if notes := dev.(device.Noting).Notes(); !strings.Contains(notes, want) {
			t.Errorf("%s: got the notes %q, want %q", fault, notes, want)
		}
		return
	}
	for _, fault := range []string{"no-locks", "held"} {
		withFault(t, test, fault, t.TempDir())
	}
}

// The times in HETERO_CPU_TIMES must not affect the kernels of later runs.
func TestChoicesOfGivenTimesAreStoredApart(t *testing.T) {
	dev := choosing(t)
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	op := choices(256)[0]
	t.Setenv(kernelTimes, "onednn=7") // a kernel without a time counts as the slowest
	op.compile(t, dev)
	t.Setenv(kernelTimes, "")
	op.compile(t, dev)
	files, err := filepath.Glob(filepath.Join(cache, "hetero-train", "choices", "*.tsv"))
	if err != nil || len(files) != 2 || !strings.HasSuffix(files[0], "_avx512_bf16.tsv") ||
		!strings.HasSuffix(files[1], "_avx512_bf16_given_times.tsv") {
		t.Fatalf("got the files %q, %v, want one for each kind of times", files, err)
	}
	for i, want := range []string{`\ttiles \d+\.\d us, onednn \d+\.\d us\n$`,
		`\tonednn\ttiles not timed, onednn 7\.0 us\n$`} {
		if text, err := os.ReadFile(files[i]); err != nil || !regexp.MustCompile(want).Match(text) {
			t.Errorf("%s: got %q, %v, want a match of %s", files[i], text, err, want)
		}
	}
	if notes := dev.(device.Noting).Notes(); !strings.Contains(notes,
		"kernels are chosen by the times in HETERO_CPU_TIMES") {
		t.Errorf("got the notes %q, want a note on the given times", notes)
	}
}

// If choices cannot be stored, the device must use its best guess. Otherwise the next run could make another choice,
// and its losses would not be bit-equal.
func TestWithoutAPlaceToStoreChoicesTheBestGuessIsUsed(t *testing.T) {
	dev := choosing(t)
	op := choices(256)[0]
	for _, c := range []struct{ cache, home, note string }{
		{"", "", "neither XDG_CACHE_HOME nor HOME is set"},
		{"/proc/no/such/place", "", "cannot be stored in /proc/no/such/place/hetero-train/choices/"},
	} {
		t.Setenv("XDG_CACHE_HOME", c.cache)
		t.Setenv("HOME", c.home)
		t.Setenv(kernelTimes, "tiles=20,onednn=10")
		if got := layoutOfWeight(t, dev, op); got != "plain" {
			t.Errorf("cache folder %q: got the weight in layout %s, want that of the tiles, plain", c.cache, got)
		}
		if notes := dev.(device.Noting).Notes(); !strings.Contains(notes, c.note) {
			t.Errorf("cache folder %q: got the notes %q, want %q", c.cache, notes, c.note)
		}
	}
}

// If the file of choices is deleted, an op that the process has compiled before must keep its kernel.
func TestAProcessKeepsItsChoicesWithoutTheirFile(t *testing.T) {
	dev := choosing(t)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv(kernelTimes, "tiles=20,onednn=10")
	op := choices(256)[0]
	before := layoutOfWeight(t, dev, op)
	path, _ := stored(t)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	t.Setenv(kernelTimes, "tiles=10,onednn=20")
	choices(256)[1].compile(t, dev)
	if after := layoutOfWeight(t, dev, op); after != before || before == "plain" {
		t.Errorf("got layout %s, then %s after the file was deleted; want the same layout of oneDNN", before, after)
	}
	if _, lines := stored(t); len(lines) != 2 {
		t.Errorf("got %q, want both choices in the new file", lines)
	}
}

// A new share of the batch must rarely need a timing, so all large numbers of rows are one class. The weight gradient
// has a single class, because its layout is that of optimizer state.
func TestChoicesOfManyBatchesAreShared(t *testing.T) {
	dev := choosing(t)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv(kernelTimes, "tiles=10,onednn=20,rows=20")
	for _, n := range []int{512, 640, 1024, 4096} {
		for _, op := range choices(n) {
			op.compile(t, dev)
		}
	}
	if _, lines := stored(t); len(lines) != len(choices(512)) {
		t.Errorf("batches from 512 rows: got %d choices, want %d:\n%v", len(lines), len(choices(512)), lines)
	}
	weights := choices(128)[2]
	before := len(choices(512))
	weights.compile(t, dev)
	if _, lines := stored(t); len(lines) != before {
		t.Errorf("weight gradient of 128 rows: got %d choices, want still %d", len(lines), before)
	}
	choices(128)[0].compile(t, dev)
	if _, lines := stored(t); len(lines) != before+1 {
		t.Errorf("linear with 128 rows: got %d choices, want %d", len(lines), before+1)
	}
}

// If two processes start at the same time, they must store the choices of both, and must use the same choices.
func TestProcessesShareChoices(t *testing.T) {
	if os.Getenv("HETERO_TEST_CHOICES") != "" {
		dev := choosing(t)
		for _, op := range choices(256) {
			op.compile(t, dev)
		}
		_, lines := stored(t)
		for _, line := range lines {
			fmt.Printf("choice %s %s %s\n", line[0], line[1], line[2])
		}
		return
	}
	choosing(t)
	var out [2]bytes.Buffer
	var children [2]*exec.Cmd
	cache := t.TempDir()
	for i := range children {
		children[i] = exec.Command(os.Args[0], "-test.run=^TestProcessesShareChoices$", "-test.v")
		children[i].Env = append(os.Environ(), "HETERO_TEST_CHOICES=1", "HETERO_TEST_CACHE="+cache)
		children[i].Stdout, children[i].Stderr = &out[i], &out[i]
		if err := children[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	var seen [2][]string
	for i, child := range children {
		if err := child.Wait(); err != nil {
			t.Fatalf("%v\n%s", err, &out[i])
		}
		for line := range strings.Lines(out[i].String()) {
			if strings.HasPrefix(line, "choice ") {
				seen[i] = append(seen[i], line)
			}
		}
	}
	if len(seen[0]) != len(choices(256)) || fmt.Sprint(seen[0]) != fmt.Sprint(seen[1]) {
		t.Errorf("got the choices\n%s\nand\n%s\nwant %d equal ones", seen[0], seen[1], len(choices(256)))
	}
}
