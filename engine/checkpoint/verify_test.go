package checkpoint

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/tensor"
)

// f32s returns an f32 tensor with the given values.
func f32s(name string, values ...float32) Tensor {
	var data []byte
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return Tensor{Name: name, DType: tensor.F32, Shape: tensor.Shape{len(values)}, Data: data}
}

// edit modifies the bytes of a file.
func edit(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, change(text), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestVerifyListsEveryFaultWithItsPlace(t *testing.T) {
	flip := func(back int) func([]byte) []byte { // flips a bit of the byte at this distance from the end
		return func(b []byte) []byte { b[len(b)-back] ^= 1; return b }
	}
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, dir string)
		want   []string // part of the text of each fault
	}{
		{"sound", func(*testing.T, string) {}, nil},
		{"two tensors", func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, "model.safetensors"), flip(1))
			edit(t, filepath.Join(dir, "optimizer.safetensors"), flip(1))
		}, []string{"model.safetensors: got SHA-256", `model.safetensors: tensor "b": bytes`,
			"optimizer.safetensors: got SHA-256", `tensor "a.momentum": bytes`}},
		{"header", func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, "model.safetensors"), func(b []byte) []byte { b[8] = '['; return b })
		}, []string{"model.safetensors: got SHA-256", "model.safetensors: header does not begin with {"}},
		{"name", func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, "model.safetensors"), func(b []byte) []byte {
				return []byte(strings.Replace(string(b), `"b"`, `"c"`, 1))
			})
		}, []string{"model.safetensors: got SHA-256", `tensor "c": bytes`,
			`tensor "b": the manifest lists this tensor`}},
		{"truncated", func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, "model.safetensors"), func(b []byte) []byte { return b[:len(b)-1] })
		}, []string{"bytes, want", "model.safetensors: got SHA-256", "tensors end at byte"}},
		{"state", func(t *testing.T, dir string) { edit(t, filepath.Join(dir, "state.json"), flip(3)) },
			[]string{"state.json: got SHA-256"}},
		{"manifest", func(t *testing.T, dir string) { edit(t, filepath.Join(dir, "MANIFEST"), flip(3)) },
			[]string{"MANIFEST: its own SHA-256"}},
		{"missing", func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "optimizer.safetensors")); err != nil {
				t.Fatal(err)
			}
		}, []string{"file optimizer.safetensors is missing"}},
	} {
		dir := filepath.Join(t.TempDir(), "checkpoints")
		saveOnDisk(t, dir, 1, Snapshot{State: fullState(10), Model: []Tensor{f32s("a", 1, 2), f32s("b", 3)},
			Optimizer: []Tensor{f32s("a.momentum", 4)}})
		dir = filepath.Join(dir, "step-00000010")
		c.damage(t, dir)
		v, err := Verify(dir)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		compareFaults(t, c.name, v.Faults, c.want)
	}
}

func compareFaults(t *testing.T, name string, got []Fault, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: got %v, want %d faults", name, got, len(want))
		return
	}
	for i, f := range got {
		if !strings.Contains(f.String(), want[i]) {
			t.Errorf("%s: fault %d: got %s, want %q in it", name, i, f, want[i])
		}
	}
}

func TestVerifyFindsNumbersThatAreNotFinite(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	dir := filepath.Join(t.TempDir(), "checkpoints")
	long := make([]float32, writeChunkBytes/4+3) // a tensor of more than two chunks
	long[writeChunkBytes/4+1], long[writeChunkBytes/4+2] = inf, nan
	whole := Tensor{Name: "c", DType: tensor.I64, Shape: tensor.Shape{1},
		Data: []byte{255, 255, 255, 255, 255, 255, 255, 255}}
	halves := Tensor{Name: "d", DType: tensor.BF16, Shape: tensor.Shape{2}, Data: []byte{0x7f, 0x7f, 0x80, 0x7f}}
	halfs := Tensor{Name: "e", DType: tensor.F16, Shape: tensor.Shape{3}, Data: []byte{0xff, 0x7b, 0, 0xfc, 0, 0}}
	doubles := Tensor{Name: "f", DType: tensor.F64, Shape: tensor.Shape{1}, Data: []byte{1, 0, 0, 0, 0, 0, 0xf0, 0x7f}}
	saveOnDisk(t, dir, 1, Snapshot{State: fullState(10), Model: []Tensor{f32s("a", long...), f32s("b", math.MaxFloat32),
		whole, halves, halfs, doubles}})
	v, err := Verify(filepath.Join(dir, "step-00000010"))
	if err != nil || v.Files != 3 || v.Tensors != 6 {
		t.Fatalf("got %+v, %v", v, err)
	}
	want := []string{
		`tensor "f": bytes`, `tensor "a": bytes`, `tensor "d": bytes`, `tensor "e": bytes`,
	}
	compareFaults(t, "not finite", v.Faults, want)
	for i, reason := range []string{"element 0 of 1 is NaN; NaN or infinite elements: 1",
		"element 262145 of 262147 is -Inf; NaN or infinite elements: 2",
		"element 1 of 2 is +Inf; NaN or infinite elements: 1", "element 1 of 3 is -Inf; NaN or infinite elements: 1"} {
		if !strings.Contains(v.Faults[i].Reason, reason) {
			t.Errorf("got %q, want %q in it", v.Faults[i].Reason, reason)
		}
	}
	// The reported offset must be that of the infinite number.
	text, err := os.ReadFile(v.Faults[1].Path)
	if err != nil {
		t.Fatal(err)
	}
	if got := math.Float32frombits(binary.LittleEndian.Uint32(text[v.Faults[1].Offset:])); got != inf ||
		v.Faults[1].Bytes != 4 {
		t.Errorf("at byte %d there is %g, want %g", v.Faults[1].Offset, got, inf)
	}
}

// laterFormat changes the format version in a manifest to a later one.
func laterFormat(b []byte) []byte {
	last := strings.LastIndex(string(b), "manifest ")
	text := strings.Replace(string(b[:last]), manifestTitle+"1", manifestTitle+"99", 1)
	return []byte(text + "manifest " + hexSum([]byte(text)) + "\n")
}

func TestVerifyCountsEveryByteOnce(t *testing.T) {
	dir := t.TempDir()
	saveOnDisk(t, dir, 1, Snapshot{State: fullState(10), Model: []Tensor{f32s("a", 1, 2)}})
	dir = filepath.Join(dir, "step-00000010")
	sound, err := Verify(dir)
	if err != nil {
		t.Fatal(err)
	}
	edit(t, filepath.Join(dir, "MANIFEST"), func(b []byte) []byte { b[len(b)-3] ^= 1; return b })
	if v, err := Verify(dir); err != nil || len(v.Faults) != 1 || v.Bytes != sound.Bytes {
		t.Errorf("damaged manifest: got %d bytes, %v, %v, want %d bytes and a fault", v.Bytes, v.Faults, err,
			sound.Bytes)
	}
}

func TestVerifyRefusesALaterFormatAndMissingFolders(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "checkpoints")
	saveOnDisk(t, dir, 1, Snapshot{State: fullState(10)})
	path := filepath.Join(dir, "step-00000010")
	edit(t, filepath.Join(path, "MANIFEST"), laterFormat)
	if _, err := Verify(path); !errors.As(err, new(*FormatError)) {
		t.Errorf("got %v, want a *FormatError", err)
	}
	if _, err := Verify(filepath.Join(dir, "step-00000011")); !errors.As(err, new(*IOError)) {
		t.Errorf("got %v, want an *IOError", err)
	}
	if _, err := VerifyFile(filepath.Join(dir, "no.safetensors")); !errors.As(err, new(*IOError)) {
		t.Errorf("got %v, want an *IOError", err)
	}
}

func TestVerifyHoldsACheckpointToTheStepOfItsFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "checkpoints")
	saveOnDisk(t, dir, 1, Snapshot{State: fullState(10)})
	moved := filepath.Join(dir, "step-00000011")
	if err := os.Rename(filepath.Join(dir, "step-00000010"), moved); err != nil {
		t.Fatal(err)
	}
	v, err := Verify(moved)
	if err != nil {
		t.Fatal(err)
	}
	compareFaults(t, "moved", v.Faults,
		[]string{"the state belongs to step 10, but the folder has the name of step 11"})
}

// testdata/format1 is a checkpoint in format 1. All programs must load it, as long as FormatVersion is 1.
func TestACheckpointOfFormat1StillLoads(t *testing.T) {
	path := filepath.Join("testdata", "format1", "step-00000020")
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if s := c.State; s.Step != 20 || s.Optimizer.Name != "adamw" || s.SamplesSeen != 160 || s.Config == "" {
		t.Errorf("got %+v", s)
	}
	w, err := c.Model.Read("fc.weight")
	if err != nil || !w.Shape.Equal(tensor.Shape{10, 4}) || len(c.Model.Tensors()) != 22 ||
		len(c.Optimizer.Tensors()) != 28 {
		t.Errorf("got %v of %d and %d tensors, %v", w.Shape, len(c.Model.Tensors()), len(c.Optimizer.Tensors()), err)
	}
	if v, err := Verify(path); err != nil || len(v.Faults) > 0 || v.Tensors != 50 {
		t.Errorf("got %+v, %v", v, err)
	}
}
