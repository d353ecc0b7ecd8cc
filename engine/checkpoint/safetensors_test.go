package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/tensor"
)

// file returns a safetensors file with the given header and data bytes of zeros.
func file(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, data)...)
}

func open(b []byte) (*File, error) {
	return NewFile(bytes.NewReader(b), int64(len(b)), "test.safetensors")
}

// The test reads a file that safetensors 0.8.0 for Python wrote from NumPy arrays.
func TestReadsWhatTheReferenceLibraryWrote(t *testing.T) {
	f, err := OpenFile("testdata/reference.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cases := []struct {
		name, wire string
		dtype      tensor.DType
		shape      tensor.Shape
		hex        string
	}{
		{"fc.weight", "F32", tensor.F32, tensor.Shape{2, 3}, "000000000000803f0000004000004040000080400000a040"},
		{"fc.bias", "F32", tensor.F32, tensor.Shape{2}, "0000c03f000000c0"},
		{"num_batches_tracked", "I64", tensor.I64, tensor.Shape{}, "0700000000000000"},
		{"half", "F16", tensor.F16, tensor.Shape{3}, "003c00400042"},
		{"mask", "BOOL", tensor.Invalid, tensor.Shape{3}, "010001"},
		{"d", "F64", tensor.F64, tensor.Shape{1, 1}, "9a9999999999b93f"},
		{"empty", "F32", tensor.F32, tensor.Shape{0, 4}, ""},
		{"ü\"\\", "U8", tensor.U8, tensor.Shape{2}, "0102"},
	}
	if got := len(f.Tensors()); got != len(cases) {
		t.Errorf("got %d tensors, want %d", got, len(cases))
	}
	for _, c := range cases {
		info, _ := f.Info(c.name)
		got, err := f.Read(c.name)
		if err != nil || info.Wire != c.wire || got.DType != c.dtype || !got.Shape.Equal(c.shape) ||
			fmt.Sprintf("%x", got.Data) != c.hex {
			t.Errorf("%s: got %s %v %x, %v; want %s %v %s", c.name, info.Wire, got.Shape, got.Data, err, c.wire,
				c.shape, c.hex)
		}
	}
	if got := f.Metadata()["format"]; got != "pt" {
		t.Errorf("metadata format: got %q, want pt", got)
	}
}

func TestWritesWhatItReads(t *testing.T) {
	tensors := []Tensor{
		{Name: "layer1.0.conv1.weight", DType: tensor.BF16, Shape: tensor.Shape{1, 3}, Data: []byte("abcdef")},
		{Name: "steps", DType: tensor.I64, Data: []byte("12345678")},
		{Name: "nothing", DType: tensor.F32, Shape: tensor.Shape{3, 0}},
		{Name: "quote\"\n<ü>", DType: tensor.U8, Shape: tensor.Shape{1}, Data: []byte("x")},
		{Name: "streamed", DType: tensor.F32, Shape: tensor.Shape{2}, Stream: func(w io.Writer) error {
			_, err := w.Write([]byte("1234"))
			_, err2 := w.Write([]byte("5678"))
			return errors.Join(err, err2)
		}},
	}
	want := map[string]string{"streamed": "12345678"}
	for _, x := range tensors {
		if x.Stream == nil {
			want[x.Name] = string(x.Data)
		}
	}
	var b bytes.Buffer
	if err := Write(&b, tensors, map[string]string{"made by": "tests"}); err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	tensors[0], tensors[3] = tensors[3], tensors[0]
	if err := Write(&again, tensors, map[string]string{"made by": "tests"}); err != nil ||
		!bytes.Equal(b.Bytes(), again.Bytes()) {
		t.Errorf("another order of the same tensors gives other bytes (%v)", err)
	}
	f, err := open(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range f.Tensors() {
		got, err := f.Read(info.Name)
		if err != nil || string(got.Data) != want[info.Name] {
			t.Errorf("%q: got %q, %v; want %q", info.Name, got.Data, err, want[info.Name])
		}
		if at := f.data + info.offset; at%max(1, info.DType.Size()) != 0 {
			t.Errorf("%q: at byte %d, not aligned to its elements of %d bytes", info.Name, at, info.DType.Size())
		}
	}
	if len(f.Tensors()) != len(want) || f.Metadata()["made by"] != "tests" {
		t.Errorf("got %d tensors and metadata %v", len(f.Tensors()), f.Metadata())
	}
}

func TestHeaderRefusals(t *testing.T) {
	one := `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`
	if _, err := open(file(one, 8)); err != nil {
		t.Fatalf("a sound file: %v", err)
	}
	nested := `{"a":` + strings.Repeat("[", 1_000_000)
	cases := []struct {
		name string
		file []byte
		want string
	}{
		{"empty file", nil, "want at least 8"},
		{"length only half there", []byte{1, 0, 0}, "want at least 8"},
		{"zip of torch.save", []byte("PK\x03\x04\x00\x00\x08\x08\x00\x00"),
			"safetensors.torch.save_file(model.state_dict()"},
		{"pickle of torch.save", []byte("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20"),
			"safetensors.torch.save_file(model.state_dict()"},
		{"header of 2^63 bytes", binary.LittleEndian.AppendUint64(nil, 1<<63), "want at most 100000000"},
		{"header over the cap", append(binary.LittleEndian.AppendUint64(nil, maxHeaderBytes+1), one...),
			"want at most"},
		{"header over the file's end", binary.LittleEndian.AppendUint64(nil, 9), "header ends at byte 17"},
		{"empty header", file("", 0), "begin with {"},
		{"leading space", file(" "+one, 8), "begin with {"},
		{"array", file("[]", 0), "begin with {"},
		{"invalid UTF-8", file("{\"\xff\":1}", 0), "UTF-8"},
		{"text after the object", file(one+"{}", 8), "after the object"},
		{"newline after the object", file(one+"\n", 8), "after the object"},
		{"deep nesting", file(nested, 0), "want '{'"},
		{"cut off", file(one[:17], 8), "without an end"},
		{"trailing comma", file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},}`, 8), "want '\"'"},
		{
			"name twice", file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`,
				2), "appears twice"},
		{"name twice, one escaped", file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\u0061":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`,
			2), "appears twice"},
		{"metadata twice", file(`{"__metadata__":{},"__metadata__":{}}`, 0), "appears twice"},
		{"metadata key twice", file(`{"__metadata__":{"k":"1","k":"2"}}`, 0), "appears twice"},
		{"metadata number", file(`{"__metadata__":{"k":1}}`, 0), "want '\"'"},
		{"key twice", file(`{"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), "appears twice"},
		{"unknown key without a value", file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"pickle":}}`, 1),
			"want a value"},
		{"unknown key with a deep value", file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":`+
			strings.Repeat("[", 99)+strings.Repeat("]", 99)+`}}`, 1), "nested"},
		{"missing shape", file(`{"a":{"dtype":"U8","data_offsets":[0,1]}}`, 1), "want dtype, shape"},
		{"one offset", file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}}`, 1), "two data_offsets"},
		{"three offsets", file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}}`, 1), "more than 2 numbers"},
		{"unknown element type", file(`{"a":{"dtype":"PYOBJ","shape":[1],"data_offsets":[0,1]}}`, 1),
			"unknown element type"},
		{"lower-case element type", file(`{"a":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}}`, 4),
			"unknown element type"},
		{"negative extents", file(`{"a":{"dtype":"U8","shape":[-1,-1],"data_offsets":[0,1]}}`, 1),
			`got "-1", want a whole number that is not negative`},
		{"negative offset", file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0, -1]}}`, 1),
			`got "-1", want a whole number that is not negative`},
		{"no extent", file(`{"a":{"dtype":"U8","shape":[1,],"data_offsets":[0,1]}}`, 1), `got "", want a whole number`},
		{"fraction", file(`{"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}}`, 1), "want ']'"},
		{"exponent", file(`{"a":{"dtype":"U8","shape":[1e0],"data_offsets":[0,1]}}`, 1), "want ']'"},
		{"leading zero", file(`{"a":{"dtype":"U8","shape":[01],"data_offsets":[0,1]}}`, 1), "leading zero"},
		{"extent of 2^63", file(`{"a":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1]}}`, 1),
			"below 2^63"},
		{"extent of 40 digits", file(`{"a":{"dtype":"U8","shape":[`+strings.Repeat("9", 40)+`],"data_offsets":[0,1]}}`,
			1), "40 digits"},
		{"shape product overflows to 0",
			file(`{"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}}`, 0), "more than 2^63"},
		{"shape product overflows before a 0",
			file(`{"a":{"dtype":"F32","shape":[4611686018427387904,4,0],"data_offsets":[0,0]}}`, 0), "more than 2^63"},
		{"too many dimensions", file(`{"a":{"dtype":"U8","shape":[`+strings.Repeat("1,", 40)+
			`1],"data_offsets":[0,1]}}`, 1), "more than 32"},
		{"size does not fit the shape", file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, 4), "needs 8"},
		{"offsets reversed", file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}}`, 1), "hold -1 bytes"},
		{
			"overlap", file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`,
				3), "an overlap"},
		{
			"same place twice", file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`,
				2), "an overlap"},
		{
			"hole", file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}`,
				3), "a gap"},
		{"hole at the begin", file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2), "a gap"},
		{"data behind the last tensor", file(one, 9), "the file ends at byte 9"},
		{"data missing", file(one, 7), "the file ends at byte 7"},
		{"control character in a name", file("{\"a\n\":1}", 0), "control character"},
		{"bad escape", file(`{"\x":1}`, 0), "invalid character"},
		{"name of 5,000 bytes", file(`{"`+strings.Repeat("n", 5000)+`":1}`, 0), "more than 4096"},
	}
	for _, c := range cases {
		_, err := open(c.file)
		if !errors.As(err, new(*CorruptError)) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want a *CorruptError with %q", c.name, err, c.want)
		}
	}
}

func TestTooManyTensorsAreRefused(t *testing.T) {
	var b strings.Builder
	for i := range maxTensors + 1 {
		fmt.Fprintf(&b, `,"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}`, i)
	}
	_, err := open(file("{"+b.String()[1:]+"}", 0))
	if err == nil || !strings.Contains(err.Error(), "more than 131072 tensors") {
		t.Errorf("got %v", err)
	}
}

func TestUnwritableTensorsAreRefused(t *testing.T) {
	cases := []struct {
		name    string
		tensors []Tensor
		want    string
	}{
		{"no name", []Tensor{{DType: tensor.U8}}, "tensor name"},
		{"the metadata's name", []Tensor{{Name: metadataKey, DType: tensor.U8}}, "tensor name"},
		{"name not UTF-8", []Tensor{{Name: "\xff", DType: tensor.U8}}, "tensor name"},
		{"no element type", []Tensor{{Name: "a"}}, "no element type"},
		{"opaque", []Tensor{{Name: "a", DType: tensor.Opaque}}, "no element type"},
		{"same name twice", []Tensor{{Name: "a", DType: tensor.U8, Data: []byte{1}},
			{Name: "a", DType: tensor.U8, Data: []byte{1}}}, "appears twice"},
		{"too little data", []Tensor{{Name: "a", DType: tensor.F32, Shape: tensor.Shape{2}, Data: make([]byte, 4)}},
			"got 4 bytes"},
		{"negative extent", []Tensor{{Name: "a", DType: tensor.F32, Shape: tensor.Shape{-1}}}, "extent -1"},
		{"stream too short",
			[]Tensor{{Name: "a", DType: tensor.F32, Shape: tensor.Shape{2}, Stream: func(w io.Writer) error {
				_, err := w.Write(make([]byte, 7))
				return err
			}}}, "1 of 8 bytes of F32"},
		{"stream too long",
			[]Tensor{{Name: "a", DType: tensor.F32, Shape: tensor.Shape{2}, Stream: func(w io.Writer) error {
				_, err := w.Write(make([]byte, 9))
				return err
			}}}, "1 bytes more"},
	}
	for _, c := range cases {
		if err := Write(io.Discard, c.tensors, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
	if err := Write(io.Discard, nil, map[string]string{"k": "\xff"}); err == nil {
		t.Error("metadata that is not UTF-8: no error")
	}
}

func TestCheckListsEveryDifference(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, []Tensor{
		{Name: "same", DType: tensor.F32, Shape: tensor.Shape{1}, Data: make([]byte, 4)},
		{Name: "shape", DType: tensor.F32, Shape: tensor.Shape{1}, Data: make([]byte, 4)},
		{Name: "type", DType: tensor.F32, Shape: tensor.Shape{1}, Data: make([]byte, 4)},
		{Name: "extra", DType: tensor.F32, Shape: tensor.Shape{1}, Data: make([]byte, 4)},
	}, nil); err != nil {
		t.Fatal(err)
	}
	f, err := open(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	want := []Info{
		{Name: "same", DType: tensor.F32, Shape: tensor.Shape{1}},
		{Name: "shape", DType: tensor.F32, Shape: tensor.Shape{1, 1}},
		{Name: "type", DType: tensor.BF16, Shape: tensor.Shape{1}},
		{Name: "absent", DType: tensor.F32, Shape: tensor.Shape{7}},
	}
	if err := f.Check(want[:1]); err == nil {
		t.Error("tensors too many: no error")
	}
	text := `test.safetensors belongs to another model; 4 tensors differ:
  absent: only in the model, F32 (7)
  extra: only in the file, F32 (1)
  shape: file F32 (1), model F32 (1, 1)
  type: file F32 (1), model BF16 (1)`
	if err := f.Check(want); err == nil || err.Error() != text {
		t.Errorf("got\n%v\nwant\n%s", err, text)
	}
	for i := range 20 {
		want = append(want, Info{Name: fmt.Sprintf("more %d", i), DType: tensor.F32})
	}
	if err := f.Check(want); err == nil || !strings.HasSuffix(err.Error(), "\n  … and 14 more") {
		t.Errorf("24 differences: got\n%v", err)
	}
}

func TestReadIntoRefusesWrongBuffersAndNames(t *testing.T) {
	f, err := OpenFile("testdata/reference.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.ReadInto("fc.bias", make([]byte, 7)); err == nil || !strings.Contains(err.Error(), "want 8") {
		t.Errorf("short buffer: got %v", err)
	}
	if _, err := f.Read("fc.nothing"); !errors.As(err, new(*MismatchError)) {
		t.Errorf("unknown name: got %v, want *MismatchError", err)
	}
	if _, err := OpenFile(t.TempDir()); !errors.As(err, new(*IOError)) {
		t.Errorf("a folder: got %v, want *IOError", err)
	}
	if _, err := OpenFile("testdata/absent"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an absent file: got %v", err)
	}
}

// FuzzSafetensors checks each accepted file. Its header must be valid JSON, its tensors must fill the file exactly, and
// the file must be equal after it was read and written.
func FuzzSafetensors(f *testing.F) {
	reference, err := os.ReadFile("testdata/reference.safetensors")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(reference)
	f.Add(
		file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[],"data_offsets":[8,9]}}  `,
			9))
	f.Add(file(`{"__metadata__":{"k":"v\u00fc"},"x":{"shape":[0,5],"dtype":"BF16","data_offsets":[0,0]}}`, 0))
	f.Add(file(`{}`, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		f, err := open(b)
		if err != nil {
			if !errors.As(err, new(*CorruptError)) {
				t.Fatalf("got %T %v, want *CorruptError", err, err)
			}
			return
		}
		if !json.Valid(b[8:f.data]) {
			t.Fatalf("accepted a header that is not JSON: %q", b[8:f.data])
		}
		total := int64(0)
		var tensors []Tensor
		for _, info := range f.Tensors() {
			x, err := f.Read(info.Name)
			if err != nil {
				t.Fatal(err)
			}
			total += int64(len(x.Data))
			if x.DType != tensor.Invalid && writableName(x.Name) {
				tensors = append(tensors, x)
			}
		}
		if f.data+total != int64(len(b)) {
			t.Fatalf("tensors and header hold %d bytes, the file %d", f.data+total, len(b))
		}
		var again bytes.Buffer
		if err := Write(&again, tensors, nil); err != nil {
			t.Fatalf("rewrite: %v", err)
		}
		g, err := open(again.Bytes())
		if err != nil {
			t.Fatalf("rewritten: %v", err)
		}
		for _, x := range tensors {
			y, err := g.Read(x.Name)
			if err != nil || !bytes.Equal(x.Data, y.Data) || !x.Shape.Equal(y.Shape) || x.DType != y.DType {
				t.Fatalf("tensor %q changed by a rewrite: %v", x.Name, err)
			}
		}
	})
}
