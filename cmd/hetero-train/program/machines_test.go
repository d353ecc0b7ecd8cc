package program

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/cluster/porttest"
	"github.com/hetero-train/hetero-train/engine/data/datatest"
)

// files maps names of files to their contents.
type files map[string]string

// write writes the files to a new folder, and returns the folder.
func (f files) write(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, contents := range f {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(contents), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// tar returns an archive of the files.
func (f files) tar(t *testing.T) string {
	t.Helper()
	var members []datatest.Member
	for _, name := range f.names() {
		members = append(members, datatest.File(name, f[name]))
	}
	return string(datatest.Tar(t, members...))
}

func (f files) names() (names []string) {
	for name := range f {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// picture returns a PNG of noise with the given width and height. All pictures of one size have the same number of
// bytes.
func picture(t *testing.T, seed uint64, size int) string {
	t.Helper()
	random, noise := rand.New(rand.NewPCG(seed, 0)), image.NewGray(image.Rect(0, 0, size, size))
	for i := range noise.Pix {
		noise.Pix[i] = uint8(random.Uint32())
	}
	var b bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.NoCompression}).Encode(&b, noise); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// classFolders returns n images in two classes.
func classFolders(t *testing.T, n, size int) files {
	t.Helper()
	f := files{}
	for i := range n {
		f[fmt.Sprintf("%s/%04d.png", []string{"cats", "dogs"}[i%2], i)] = picture(t, uint64(i), size)
	}
	return f
}

// changed returns a copy of f in which the first n images are other images of the same size.
func (f files) changed(t *testing.T, n, size int) files {
	t.Helper()
	other := files{}
	for k, name := range f.names() {
		if other[name] = f[name]; k < n {
			other[name] = picture(t, uint64(1_000_000+k), size)
		}
	}
	return other
}

// small is the width and height of most images in these tests, in pixels.
const small = 6

// onTwoMachines runs two ranks with different values of data.path, as on two machines. It returns the results by rank.
// It calls do after rank 0 has printed a step, unless do is nil.
func onTwoMachines(t *testing.T, p program, output, path0, path1 string, do func(), set ...string) [2]ended {
	t.Helper()
	port := porttest.Free(t)
	rank := func(rank int, path string) *exec.Cmd {
		return asRank(p.command(output, append(slices.Clone(set), "data.path="+path)...), rank, 2, port)
	}
	other := make(chan ended, 1)
	second := rank(1, path1)
	var out, messages bytes.Buffer
	second.Stdout, second.Stderr = &out, &messages
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		err := second.Wait()
		var e *exec.ExitError
		code := 0
		if errors.As(err, &e) {
			code = e.ExitCode()
		}
		other <- ended{code, out.String(), messages.String()}
	}()
	if do == nil {
		do = func() {}
	}
	lead := finishAfterStep(t, rank(0, path0), do)
	return [2]ended{lead, <-other}
}

// checkBoth checks that both ranks refused the data of rank 1.
func checkBoth(t *testing.T, ranks [2]ended, texts ...string) {
	t.Helper()
	for rank, e := range ranks {
		for _, text := range append(texts, "data.path: rank 1 (", ") and rank 0 (") {
			if e.code != exit.Usage || !strings.Contains(e.stderr, text) {
				t.Errorf("rank %d: got exit code %d, want %d and %q in\n%s", rank, e.code, exit.Usage, text, e.stderr)
			}
		}
	}
}

func TestMachinesWithOtherDataAreRefused(t *testing.T) {
	t.Parallel()
	p := buildRanks(t)
	all := classFolders(t, 600, small)
	swapped := all.changed(t, 0, small)
	swapped["cats/0000.png"], swapped["dogs/0001.png"] = all["dogs/0001.png"], all["cats/0000.png"]
	relabelled := all.changed(t, 0, small)
	relabelled["dogs/0000.png"], relabelled["cats/0001.png"] = all["cats/0000.png"], all["dogs/0001.png"]
	delete(relabelled, "cats/0000.png")
	delete(relabelled, "dogs/0001.png")
	labels := func(f files) files {
		shard := files{}
		for k, name := range f.names() {
			shard[fmt.Sprintf("%04d.png", k)], shard[fmt.Sprintf("%04d.cls", k)] = f[name], fmt.Sprint(k%2)
		}
		return shard
	}
	tokens := func(at int) files {
		f := files{}
		for _, name := range []string{"train.bin", "val.bin"} {
			contents := bytes.Repeat([]byte{1, 0, 2, 0, 3, 0}, 200)
			if name == "val.bin" && at >= 0 {
				contents[2*at] = 4
			}
			f[name] = string(contents)
		}
		return f
	}
	texts := func(class string) files {
		return files{"a.tsv": "text\tlabel\n" + strings.Repeat("it was the best\tgood\nit was the worst\tbad\n", 40) +
			"best of times\t" + class + "\n"}
	}
	vocab := wordVocabulary(t, t.TempDir())
	const images = "data.dataset=images"
	trained := map[string]bool{} // kinds of data on which two machines with equal data have trained
	for _, c := range []struct {
		name       string
		one, other files
		in         string // file below the folder that data.path names; "": the folder itself
		config     string
		set        []string
		want       []string
	}{
		{"all images", all, all.changed(t, 600, small), "", smallRun, []string{images},
			[]string{`the content of "cats/0000.png" differs (600 of 600`}},
		{"100 of 600 images", all, all.changed(t, 100, small), "", smallRun, []string{images},
			[]string{"(100 of 600 compared units differ)"}},
		{"one image", all, all.changed(t, 1, small), "", smallRun, []string{images},
			[]string{`"cats/0000.png" differs (1 of 600`}},
		{"two files in each other's place", all, swapped, "", smallRun, []string{images},
			[]string{"(2 of 600 compared units differ)"}},
		{"two files in each other's class", all, relabelled, "", smallRun, []string{images},
			[]string{`name, label or size of "cats/0001.png", on rank 0 "cats/0000.png"`}},
		{"one image of an archive", files{"a.tar": all.tar(t)}, files{"a.tar": all.changed(t, 1, small).tar(t)},
			"a.tar", smallRun, []string{images}, []string{`"cats/0000.png" differs (1 of 600`}},
		{"a shard with another image of the same size", files{"a-000.tar": labels(all).tar(t)}, files{
			"a-000.tar": labels(all.changed(t, 1, small)).tar(t)}, "", smallRun, []string{"data.dataset=webdataset"},
			[]string{`the content of "0000.png" differs (1 of 600`}},
		{"a token", tokens(-1), tokens(500), "", smallText, []string{"data.dataset=text", "data.vocabulary=16"},
			[]string{`the content of "val.bin, tokens 0 to 599" differs (1 of 2 `}},
		{"a label of a text", texts("good"), texts("bad"), "a.tsv", smallClassifier("", vocab), nil,
			[]string{`of "text 81 of file 1" differs`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			one, other := filepath.Join(c.one.write(t), c.in), filepath.Join(c.other.write(t), c.in)
			p.config = clitest.WriteConfig(t, withoutSamples(c.config))
			set := append(c.set, "train.steps=3", "data.batch_size=8")
			output := t.TempDir()
			checkBoth(t, onTwoMachines(t, p, output, one, other, nil, set...), append(c.want, one, other)...)
			if entries, err := os.ReadDir(filepath.Join(output, "run")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the refused run has written %v, %v", entries, err)
			}
			kind := fmt.Sprint(c.in, c.config, c.set)
			if trained[kind] {
				return
			}
			trained[kind] = true
			again := filepath.Join(c.one.write(t), c.in) // a copy of the same data in another folder
			for rank, e := range onTwoMachines(t, p, output, one, again, nil, set...) {
				if e.code != exit.Done {
					t.Errorf("equal data, rank %d: got exit code %d\n%s", rank, e.code, e.stderr)
				}
			}
		})
	}
}

// withoutSamples removes the settings that belong to synthetic data.
func withoutSamples(config string) string {
	var kept []string
	for line := range strings.Lines(config) {
		if !strings.HasPrefix(line, "num_samples") && !strings.HasPrefix(line, "vocabulary") &&
			!strings.HasPrefix(line, "epochs") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// If images change on one machine, during a run or between two starts, the run must end before its next checkpoint. The
// images are too large for the cache of decoded images, so each epoch reads them again.
func TestImagesThatChangeOnOneMachine(t *testing.T) {
	t.Parallel()
	const size = 260
	p := buildRanks(t)
	p.config = clitest.WriteConfig(t, withoutSamples(smallRun))
	all := classFolders(t, 50, size)
	one, other, output := all.write(t), all.write(t), t.TempDir()
	change := func() {
		for name, contents := range all.changed(t, 50, size) {
			path := filepath.Join(other, name)
			// The file is renamed when complete, because a rank must not read an incomplete file.
			half := filepath.Join(filepath.Dir(other), "half")
			if err := errors.Join(os.WriteFile(half, []byte(contents), 0o644), os.Rename(half, path)); err != nil {
				t.Error(err)
			}
		}
	}
	set := []string{"data.dataset=images", "train.eval_interval=0", "checkpoint.interval_steps=5"}
	for rank, e := range onTwoMachines(t, p, output, one, other, nil, append(set, "train.steps=20")...) {
		if e.code != exit.Done {
			t.Fatalf("rank %d: got exit code %d\n%s", rank, e.code, e.stderr)
		}
	}
	running := t.TempDir()
	ranks := onTwoMachines(t, p, running, one, other, change,
		append(set, "train.steps=100000", "train.log_interval=1", "checkpoint.interval_steps=1000000")...)
	checkBoth(t, ranks, "the content of ")
	if saved, err := filepath.Glob(filepath.Join(running, "run", "checkpoints", "step*")); err != nil ||
		len(saved) > 0 {
		t.Errorf("got checkpoints %v, %v, want none", saved, err)
	}
	checkBoth(t, onTwoMachines(t, p, output, one, other, nil, append(set, "train.steps=40")...),
		"(50 of 50 compared units differ)")
	if got := resultOf(t, filepath.Join(output, "run")); got.Steps != 20 {
		t.Errorf("the result is that of step %d, want 20", got.Steps)
	}
}
