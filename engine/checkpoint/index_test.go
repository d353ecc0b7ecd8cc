package checkpoint

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/tensor"
)

// writeParts writes two files with one tensor each, and an index with the given text.
func writeParts(t *testing.T, index string) (path string) {
	t.Helper()
	dir := t.TempDir()
	for name, tensors := range map[string][]Tensor{
		"model-00001-of-00002.safetensors": {
			{Name: "a", DType: tensor.F32, Shape: tensor.Shape{2}, Data: []byte("12345678")}},
		"model-00002-of-00002.safetensors": {
			{Name: "b", DType: tensor.U8, Shape: tensor.Shape{3}, Data: []byte("xyz")}},
	} {
		var b bytes.Buffer
		if err := Write(&b, tensors, map[string]string{"format": "pt"}); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path = filepath.Join(dir, "model"+IndexSuffix)
	if err := os.WriteFile(path, []byte(index), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const twoParts = `{"metadata": {"total_size": 11}, "weight_map": {"b": "model-00002-of-00002.safetensors", "a": "model-00001-of-00002.safetensors"}}`

func TestAnIndexIsReadAsOneFile(t *testing.T) {
	f, err := OpenFile(writeParts(t, twoParts))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for name, want := range map[string]string{"a": "12345678", "b": "xyz"} {
		got, err := f.Read(name)
		if err != nil || string(got.Data) != want {
			t.Errorf("%s: got %q, error %v; want %q", name, got.Data, err, want)
		}
	}
	if len(f.Tensors()) != 2 || f.Metadata()["format"] != "pt" {
		t.Errorf("got tensors %v and metadata %v", f.Tensors(), f.Metadata())
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := f.ReadInto("a", make([]byte, 8)); err == nil {
		t.Error("the files of a closed index can be read")
	}
}

func TestIndexesThatDoNotFitAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{`:                  "want an index",
		`{"weight_map": {}}`: "lists 0 files",
		`{"weight_map": {"a": "../model-00001-of-00002.safetensors"}}`: "in the folder of the index",
		`{"weight_map": {"a": "/etc/passwd"}}`:                         "in the folder of the index",
		`{"weight_map": {"a": "config.json"}}`:                         "want the name of a .safetensors file",
		`{"weight_map": {"a": "model-00003-of-00003.safetensors"}}`:    "the folder has no such file",
		strings.Replace(twoParts, `"b": "model-00002`, `"b": "model-00001`,
			1): `names tensor "b" in model-00001-of-00002.safetensors`,
		strings.Replace(twoParts, `{"b"`, `{"c": "model-00002-of-00002.safetensors", "b"`, 1): `names tensor "c"`,
	} {
		if f, err := OpenFile(writeParts(t, text)); !errors.As(err, new(*CorruptError)) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, %v; want a *CorruptError with %q", text, f, err, want)
		}
	}
	path := writeParts(t, twoParts)
	first := filepath.Join(filepath.Dir(path), "model-00001-of-00002.safetensors")
	second := filepath.Join(filepath.Dir(path), "model-00002-of-00002.safetensors")
	if err := os.Remove(second); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(first, second); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenFile(path); !errors.As(err, new(*CorruptError)) ||
		!strings.Contains(err.Error(), `tensor "a" is in`) {
		t.Errorf("one tensor twice: got %v", err)
	}
}

func TestTheFilesOfAnIndexAreVerified(t *testing.T) {
	path := writeParts(t, twoParts)
	if v, err := VerifyFile(path); err != nil || v.Files != 2 || v.Tensors != 2 || len(v.Faults) > 0 {
		t.Errorf("got %+v, %v; want 2 sound files", v, err)
	}
	second := filepath.Join(filepath.Dir(path), "model-00002-of-00002.safetensors")
	bad := file(`{"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 0)
	if err := os.WriteFile(second, append(bad, 0, 0, 0xC0, 0x7F), 0o600); err != nil { // NaN
		t.Fatal(err)
	}
	if v, err := VerifyFile(path); err != nil || len(v.Faults) != 1 || v.Faults[0].Path != second ||
		v.Faults[0].Tensor != "b" {
		t.Errorf("got %+v, %v; want the NaN of tensor b in %s", v, err, second)
	}
}

// The reference implementation accepts the headers of this test.
func TestAuxiliaryPartsOfAHeaderAreIgnored(t *testing.T) {
	for name, b := range map[string][]byte{
		"no metadata": file(`{"__metadata__":null,"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1),
		"unknown keys": file(
			`{"a":{"x":[1,{"y":null}],"dtype":"U8","z":-1.5e3,"shape":[1],"w":"t","data_offsets":[0,1]}}`, 1),
		"numbers of eight bit": file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[1,4]}}`,
			4),
	} {
		f, err := open(b)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, ok := f.Info("a"); !ok {
			t.Errorf("%s: got tensors %v", name, f.Tensors())
		}
	}
}
