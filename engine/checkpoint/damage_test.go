package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/tensor"
)

// savedNode returns a file system with one checkpoint, and the files of this checkpoint.
func savedNode(t *testing.T) (*memoryFS, map[string]*node) {
	t.Helper()
	fsys := newMemoryFS()
	snapshot := save{step: 10, version: 1}.snapshot()
	snapshot.State = fullState(10)
	snapshot.Model = append(snapshot.Model,
		Tensor{Name: "b", DType: tensor.U8, Shape: tensor.Shape{3}, Data: []byte{1, 2, 3}})
	if _, err := memoryStore(fsys).Save(context.Background(), snapshot); err != nil {
		t.Fatal(err)
	}
	return fsys, fsys.root.entries["step-00000010"].entries
}

func mustRefuse(t *testing.T, fsys *memoryFS, what string) {
	t.Helper()
	c, err := load(fsys, "step-00000010", "run/step-00000010")
	if err == nil {
		c.Close()
		t.Fatalf("%s: loaded", what)
	}
	if !errors.As(err, new(*CorruptError)) && !errors.As(err, new(*FormatError)) {
		t.Fatalf("%s: got %T %v, want *CorruptError", what, err, err)
	}
}

func TestEveryFlippedBitIsFound(t *testing.T) {
	fsys, files := savedNode(t)
	bits := 0
	for name, file := range files {
		for i := range file.data {
			for bit := range 8 {
				file.data[i] ^= 1 << bit
				mustRefuse(t, fsys, fmt.Sprintf("%s byte %d bit %d", name, i, bit))
				file.data[i] ^= 1 << bit
				bits++
			}
		}
	}
	if c, err := load(fsys, "step-00000010", "run"); err != nil {
		t.Fatalf("undamaged: %v", err)
	} else {
		c.Close()
	}
	t.Logf("%d bits", bits)
}

func TestEveryTruncationAndExtensionIsFound(t *testing.T) {
	fsys, files := savedNode(t)
	for name, file := range files {
		whole := file.data
		for size := range whole {
			file.data = whole[:size]
			mustRefuse(t, fsys, fmt.Sprintf("%s cut to %d bytes", name, size))
		}
		for _, more := range []string{"\n", " ", "\x00", "x"} {
			file.data = append(slices.Clone(whole), more...)
			mustRefuse(t, fsys, fmt.Sprintf("%s with %q behind it", name, more))
		}
		file.data = whole
		delete(files, name)
		mustRefuse(t, fsys, name+" missing")
		files[name] = file
	}
}

func TestManifestRefusals(t *testing.T) {
	_, files := savedNode(t)
	sound := string(files[manifestFile].data)
	body := sound[:strings.LastIndex(sound, "manifest ")]
	sealed := func(body string) string { return body + "manifest " + hexSum([]byte(body)) + "\n" }
	if _, err := decodeManifest("MANIFEST", []byte(sealed(body))); err != nil {
		t.Fatalf("sound: %v", err)
	}
	fileLine := strings.Split(body, "\n")[1] + "\n"
	cases := []struct{ name, body, want string }{
		{"empty", "", "line 1"},
		{"another title", strings.Replace(body, "hetero", "homo", 1), "line 1"},
		{"no version", strings.Replace(body, "checkpoint 1", "checkpoint one", 1), "line 1"},
		{"file twice", body + fileLine, "bad file line"},
		{"file missing", strings.Replace(body, fileLine, "", 1), "bad tensor line"},
		{"path as a name", body + "file 1 00 ../../etc/passwd\n", "bad file line"},
		{"negative size", strings.Replace(body, "file ", "file -", 1), "bad file line"},
		{"tensor twice", body + "tensor 00000000 model.safetensors \"w\"\n", "bad tensor line"},
		{"unknown line", body + "run a b c\n", "want \"file\" or \"tensor\""},
		{"short line", body + "file 1\n", "want 4 fields"},
	}
	for _, c := range cases {
		_, err := decodeManifest("MANIFEST", []byte(sealed(c.body)))
		if !errors.As(err, new(*CorruptError)) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want a *CorruptError with %q", c.name, err, c.want)
		}
	}
	_, err := decodeManifest("MANIFEST", []byte(sealed(strings.Replace(body, "checkpoint 1", "checkpoint 2", 1))))
	var format *FormatError
	if !errors.As(err, &format) || format.Got != 2 || format.Want != 1 {
		t.Errorf("later format: got %v, want *FormatError", err)
	}
}

// The checksums in the manifest are correct, but the manifest lists other tensors.
func TestTensorsOfAnotherFileAreRefused(t *testing.T) {
	fsys, files := savedNode(t)
	text := string(files[manifestFile].data)
	body := strings.Replace(text[:strings.LastIndex(text, "manifest ")], `model.safetensors "w"`,
		`model.safetensors "v"`, 1)
	files[manifestFile].data = []byte(body + "manifest " + hexSum([]byte(body)) + "\n")
	mustRefuse(t, fsys, "renamed tensor")
}

// Bytes change between verification and reading.
func TestDamageAfterLoadIsFound(t *testing.T) {
	fsys, _ := savedNode(t)
	c, err := load(fsys, "step-00000010", "run")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Model.sums["w"] ^= 1
	if err := c.Model.ReadInto("w", make([]byte, 8)); !errors.As(err, new(*CorruptError)) {
		t.Errorf("got %v, want *CorruptError", err)
	}
}
