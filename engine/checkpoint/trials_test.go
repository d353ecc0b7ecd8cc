package checkpoint

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// trials is the number of random bits to flip. docs/reliability.md reports results for 100,000.
var trials = flag.Int("checkpoint.trials", 3000, "random bits to flip in a checkpoint")

// manyTensors returns a snapshot of a small network: layers of several sizes, with two moments each.
func manyTensors(step int64) Snapshot {
	random := rand.New(rand.NewPCG(uint64(step), 7))
	fill := func(name string, shape ...int) Tensor {
		t := Tensor{Name: name, DType: tensor.F32, Shape: shape}
		bytes, _ := dataBytes(shape, 4)
		t.Data = make([]byte, bytes)
		for i := range t.Data {
			t.Data[i] = byte(random.Uint32())
		}
		return t
	}
	s := Snapshot{State: fullState(step)}
	for layer := range 12 {
		name := fmt.Sprintf("layer%d.conv.weight", layer)
		shape := []int{4 + layer, 3, 3, 3}
		s.Model = append(s.Model, fill(name, shape...), fill(fmt.Sprintf("layer%d.conv.bias", layer), 4+layer))
		s.Optimizer = append(s.Optimizer, fill(name+".exp_avg", shape...), fill(name+".exp_avg_sq", shape...))
	}
	return s
}

// mustFallBack checks that the damaged checkpoint is skipped with a reason, and that the previous one is loaded.
func mustFallBack(t *testing.T, fsys fileSystem, what string) {
	t.Helper()
	c, skipped, err := latest(fsys, "run")
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	defer c.Close()
	if c.State.Step != 10 || len(skipped) != 1 || !errors.As(skipped[0].Err, new(*CorruptError)) {
		t.Fatalf("%s: undetected: got step %d, skipped %v; want step 10 and *CorruptError", what, c.State.Step, skipped)
	}
}

// twoCheckpoints saves checkpoints of the steps 10 and 20.
func twoCheckpoints(t *testing.T) *memoryFS {
	t.Helper()
	fsys := newMemoryFS()
	store := memoryStore(fsys)
	for _, step := range []int64{10, 20} {
		if _, err := store.Save(context.Background(), manyTensors(step)); err != nil {
			t.Fatal(err)
		}
	}
	return fsys
}

// The test flips the same number of single bits in each file, regardless of its size. Half of the bits are in the first
// 512 bytes, which contain the headers (row D5 of docs/reliability.md). Another test truncates files.
func TestRandomFlippedBitsAreFound(t *testing.T) {
	fsys := twoCheckpoints(t)
	files := fsys.root.entries["step-00000020"].entries
	names := append([]string{manifestFile}, checkpointFiles...)
	random := rand.New(rand.NewPCG(5, uint64(*trials)))
	for trial := range *trials {
		name := names[trial%len(names)]
		data := files[name].data
		at := random.IntN(len(data))
		if trial/len(names)%2 == 0 {
			at = random.IntN(min(len(data), 512))
		}
		bit := byte(1) << random.IntN(8)
		data[at] ^= bit
		mustFallBack(t, fsys, fmt.Sprintf("%s byte %d bit %#02x", name, at, bit))
		data[at] ^= bit
	}
	c, skipped, err := latest(fsys, "run")
	if err != nil || len(skipped) > 0 || c.State.Step != 20 {
		t.Errorf("undamaged: %v, skipped %v", err, skipped)
	}
	t.Logf("%d bits flipped, all found", *trials)
}

// cuts returns the lengths to which the test truncates a file: every 1/256 of its size, and lengths near the limits of
// its parts.
func cuts(file []byte) []int {
	list := []int{0, 1, 7, 8, 9, len(file) - 1}
	for k := range 256 {
		list = append(list, len(file)*k/256)
	}
	if len(file) > 8 {
		if header := binary.LittleEndian.Uint64(file); header < uint64(len(file)) {
			list = append(list, int(header)+7, int(header)+8, int(header)+9)
		}
	}
	return list
}

// The test truncates files on a real disk. -checkpoint.megabytes can make them large (row D4 of docs/reliability.md).
func TestTruncatedFilesAreFoundAndTheOneBeforeIsTaken(t *testing.T) {
	dir := t.TempDir()
	snapshot := manyTensors(20)
	if n := *megabytes; n > 0 {
		snapshot.Model = append(snapshot.Model, Tensor{Name: "large", DType: tensor.U8, Shape: tensor.Shape{n << 20},
			Data: make([]byte, n<<20)})
	}
	saveOnDisk(t, dir, 3, manyTensors(10), snapshot)
	cut := 0
	var slowest time.Duration
	for _, name := range append([]string{manifestFile}, checkpointFiles...) {
		path := filepath.Join(dir, "step-00000020", name)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range cuts(whole) {
			if err := os.Truncate(path, int64(size)); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			fsys, err := openFolder(dir)
			if err != nil {
				t.Fatal(err)
			}
			mustFallBack(t, fsys, fmt.Sprintf("%s cut to %d of %d bytes", name, size, len(whole)))
			fsys.root.Close()
			slowest = max(slowest, time.Since(begun))
			cut++
			if err := os.WriteFile(path, whole, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("%d cuts, all found; the checkpoint before was open within %v", cut, slowest)
}

var megabytes = flag.Int("checkpoint.megabytes", 0, "size of one more tensor in the files that are cut")

// The test makes each operation of loading fail with EIO. The loaded data must be valid, and each skipped checkpoint
// must have a reason (row D6 of docs/reliability.md).
func TestEveryFailedReadIsTold(t *testing.T) {
	fsys := twoCheckpoints(t)
	failed := 0
	for ; ; failed++ {
		fsys.reads, fsys.failing = 0, failed+1
		c, skipped, err := latest(fsys, "run")
		if fsys.reads < fsys.failing {
			break // loading has fewer operations
		}
		fsys.failing = 0
		switch {
		case err != nil && !errors.As(err, new(*IOError)):
			t.Fatalf("%s failed: got %T %v, want *IOError", fsys.failed, err, err)
		case err == nil && (len(skipped) != 1 || !errors.As(skipped[0].Err, new(*IOError)) || c.State.Step != 10):
			t.Fatalf("%s failed: got step %d, skipped %v; want step 10 and *IOError", fsys.failed, c.State.Step,
				skipped)
		}
		if err == nil {
			c.Close()
		}
	}
	if failed < 15 {
		t.Errorf("got %d operations, want those of two checkpoints", failed)
	}
	fsys.failing = 0
	c, _, err := latest(fsys, "run")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	name := c.Model.Tensors()[0].Name
	fsys.reads, fsys.failing = 0, 1
	if _, err := c.Model.Read(name); !errors.As(err, new(*IOError)) {
		t.Errorf("reading a tensor: got %v, want *IOError", err)
	}
	t.Logf("%d operations", failed)
}

// A checkpoint of a later format must be refused. Only a damaged checkpoint may be skipped (row D8 of
// docs/reliability.md).
func TestALaterFormatIsRefused(t *testing.T) {
	fsys := newMemoryFS()
	store := memoryStore(fsys)
	for _, step := range []int64{10, 20, 30} {
		if _, err := store.Save(context.Background(), save{step: step}.snapshot()); err != nil {
			t.Fatal(err)
		}
	}
	store.keep = 3
	file := fsys.root.entries["step-00000030"].entries[manifestFile]
	text := string(file.data)
	body := strings.Replace(text[:strings.LastIndex(text, "manifest ")], fmt.Sprintf("checkpoint %d", FormatVersion),
		fmt.Sprintf("checkpoint %d", FormatVersion+1), 1)
	file.data = []byte(body + "manifest " + hexSum([]byte(body)) + "\n")
	_, _, err := latest(fsys, "run")
	if !errors.As(err, new(*FormatError)) || !strings.Contains(err.Error(), "use the program version that wrote it") {
		t.Errorf("got %v, want *FormatError", err)
	}
}

// Reading a header may allocate at most the file size plus 96 MiB, including memory that is freed again (row S6 of
// docs/reliability.md).
func TestHostileHeadersTakeLittleMemory(t *testing.T) {
	needtest.NotShort(t, "reads headers of 30 MB, which takes seconds under the race detector")
	var many, names strings.Builder
	for i := range maxTensors {
		fmt.Fprintf(&many, `,"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}`, i)
	}
	for i := range 3000 {
		fmt.Fprintf(&names, `,"%04d%s":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}`, i,
			strings.Repeat("n", maxNameBytes-4))
	}
	ones := strings.TrimSuffix(strings.Repeat("1,", maxDims), ",")
	for name, b := range map[string][]byte{
		"as many tensors as allowed":  file("{"+many.String()[1:]+"}", 0),
		"names as long as allowed":    file("{"+names.String()[1:]+"}", 0),
		"metadata as long as allowed": file(`{"__metadata__":{"k":"`+strings.Repeat("v", maxMetadataBytes-1)+`"}}`, 0),
		"metadata that is escaped": file(`{"__metadata__":{"k":"`+strings.Repeat(`\u00fc`, maxMetadataBytes/6)+`"}}`,
			0),
		"deep nesting":            file(`{"a":`+strings.Repeat("[", 30<<20), 0),
		"a header of spaces":      file("{}"+strings.Repeat(" ", 30<<20), 0),
		"a string without an end": file(`{"`+strings.Repeat("n", 30<<20), 0),
		"a header of 2^63 bytes":  binary.LittleEndian.AppendUint64(nil, 1<<63),
		"a header of 100 MB":      binary.LittleEndian.AppendUint64(nil, maxHeaderBytes),
		"a tensor of 2^62 bytes": file(`{"a":{"dtype":"U8","shape":[`+ones+
			`,4611686018427387904],"data_offsets":[0,4611686018427387904]}}`, 0),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := open(b)
		runtime.ReadMemStats(&after)
		if got, most := after.TotalAlloc-before.TotalAlloc, uint64(len(b)+96<<20); got > most {
			t.Errorf("%s: took %d MiB for a file of %d bytes (%v)", name, got>>20, len(b), err)
		}
	}
}

// An accepted manifest must list the files of a checkpoint. If the test encodes it again, the bytes must be the same.
func FuzzManifest(f *testing.F) {
	fsys := newMemoryFS()
	if _, err := memoryStore(fsys).Save(context.Background(), save{step: 10}.snapshot()); err != nil {
		f.Fatal(err)
	}
	text := string(fsys.root.entries["step-00000010"].entries[manifestFile].data)
	body := text[:strings.LastIndex(text, "manifest ")]
	f.Add(body)
	f.Add(strings.Replace(body, "checkpoint 1", "checkpoint 2", 1))
	f.Add(manifestTitle + "1\nfile 1 00 ../state.json\ntensor 0 state.json \"\\xff\"\n")
	f.Fuzz(func(t *testing.T, body string) {
		// The checksum is correct, so only the contents can be the reason for a refusal.
		m, err := decodeManifest("MANIFEST", []byte(body+"manifest "+hexSum([]byte(body))+"\n"))
		if err != nil {
			if !errors.As(err, new(*CorruptError)) && !errors.As(err, new(*FormatError)) {
				t.Fatalf("got %T %v", err, err)
			}
			return
		}
		if len(m.files) != len(checkpointFiles) {
			t.Fatalf("accepted with %d files", len(m.files))
		}
		again, err := decodeManifest("MANIFEST", m.encode())
		if err != nil || string(again.encode()) != string(m.encode()) {
			t.Fatalf("written again: %v", err)
		}
	})
}

// An accepted state must not change if it is encoded and decoded again.
func FuzzState(f *testing.F) {
	text, err := encodeState(fullState(3))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"step":-1}`))
	f.Add([]byte(`{"extra":{"a":` + strings.Repeat("[", 1000) + `}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := decodeState(text)
		if err != nil {
			return
		}
		first, err := encodeState(s)
		if err != nil {
			t.Fatalf("accepted, but cannot be written: %v", err)
		}
		s, err = decodeState(first)
		if err != nil {
			t.Fatalf("written, but cannot be read: %v", err)
		}
		if second, err := encodeState(s); err != nil || string(first) != string(second) {
			t.Fatalf("changes when it is written again: %v", err)
		}
	})
}
