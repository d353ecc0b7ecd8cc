package program

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/data"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/data/datatest"
	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
)

// packed returns a tar of files. The arguments are pairs of a name and the contents.
func packed(t *testing.T, files ...string) []byte {
	t.Helper()
	var members []datatest.Member
	for i := 0; i < len(files); i += 2 {
		members = append(members, datatest.File(files[i], files[i+1]))
	}
	return datatest.Tar(t, members...)
}

// Damaged parts of a data set must end a run, with advice in the error. With data.corrupt = "skip", all ranks must
// leave out the damaged parts, and the end of the run must list these parts.
func TestDamagedPartsAreLeftOut(t *testing.T) {
	p, dir := buildProgram(t), t.TempDir()
	put := func(name string, contents []byte) {
		t.Helper()
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, contents, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var shard, folder []string
	for i := range 16 {
		img := string(greyPNG(t, uint8(10*i)))
		shard = append(shard, fmt.Sprintf("%02d.png", i), img, fmt.Sprintf("%02d.cls", i), fmt.Sprint(i%2))
		folder = append(folder, fmt.Sprintf("%c/%02d.png", 'a'+i%2, i), img)
	}
	put("shards/a.tar", packed(t, shard...))
	put("shards/b.tar", nil)
	put("shards/c.tar", packed(t, shard[:6]...))
	put("folder.tar", packed(t, folder...)[:8300])
	put("lines.tsv", []byte("text\tlabel\n"+strings.Repeat("good film\tpos\nbad film\tneg\n", 12)+
		"no label\nbad \xff byte\tneg\n"))
	put("vocab.txt", []byte("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngood\nbad\nfilm\n"))
	put("tokens/train-0.bin", bytes.Repeat([]byte{1, 0, 2, 0, 3, 0}, 200))
	put("tokens/train-1.bin", []byte{1, 0, 2}) // the file ends within a token
	for _, c := range []struct {
		name  string
		set   []string
		fails string   // part of the error without data.corrupt = "skip"
		says  []string // parts of the output with data.corrupt = "skip"
	}{
		{"shards", []string{"data.dataset=webdataset", "data.path=" + filepath.Join(dir, "shards")},
			"b.tar", []string{"a damaged file was, with all its samples, left out", "b.tar", "c.tar"}},
		{"a tar of class folders", []string{"data.dataset=images", "data.path=" + filepath.Join(dir, "folder.tar")},
			"the archive was cut", []string{"the archive was cut", "images before are used"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			nativetest.Need(t, "shm", "libhetero_shm.so")
			set := append([]string{"data.num_samples=0", "data.batch_size=4", "train.steps=6", "parallel.ranks=2",
				"data.val_fraction=0.1", "data.cache_dir=" + t.TempDir()}, c.set...)
			out := finish(t, p.command(t.TempDir(), set...), 0)
			for _, says := range []string{c.fails, `data.corrupt = "skip"`, "--allow data.path"} {
				out.check(t, exit.Data, says)
			}
			results := t.TempDir()
			out = finish(t, p.command(results, append(set, "data.corrupt=skip")...), 0)
			result, err := os.ReadFile(filepath.Join(results, "run", "results", "result.json"))
			if err != nil {
				t.Fatal(err)
			}
			for _, says := range c.says {
				out.check(t, exit.Done, says)
				if !strings.Contains(string(result), says) {
					t.Errorf("result.json does not say %q:\n%s", says, result)
				}
			}
		})
	}
	for _, c := range []struct {
		name, config string
		fails, says  string
	}{
		{"token files", "[model]\nname=\"gpt2\"\nlayers=1\nheads=1\nembedding_size=8\n[data]\ndataset=\"text\"\n" +
			"path=\"DIR/tokens\"\nvocabulary=8\nsequence_length=8\nbatch_size=4\n", "train-1.bin", "train-1.bin"},
		{"labelled texts", "[model]\nname=\"bert_base\"\nlayers=1\nheads=1\nembedding_size=8\n[data]\n" +
			"dataset=\"labelled_text\"\npath=\"DIR/lines.tsv\"\nvocab_file=\"DIR/vocab.txt\"\nsequence_length=8\n" +
			"batch_size=4\n", "line 26: got 1 columns", "line 27: byte 4 is not UTF-8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			run := func(corrupt string) ended {
				file := filepath.Join(t.TempDir(), "run.toml")
				text := strings.ReplaceAll(c.config, "DIR", dir) + "corrupt=\"" + corrupt +
					"\"\n[device]\nkind=\"reference\"\n[train]\nsteps=3\n[experiment]\noutput_dir=\"" + t.TempDir() + "\"\n"
				if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
				return finish(t, exec.Command(p.path, "train", "-c", file), 0)
			}
			if o := run("error"); o.code != exit.Data || !strings.Contains(o.stderr, c.fails) {
				t.Errorf("got exit code %d, want %d and %q in %s", o.code, exit.Data, c.fails, o.stderr)
			}
			if o := run("skip"); o.code != exit.Done || !strings.Contains(o.stderr+o.stdout, c.says) {
				t.Errorf("got exit code %d, want 0 and %q in %s", o.code, c.says, o.stderr)
			}
		})
	}
}

// data verify must list damaged files for each value of data.corrupt. data inspect must list the files that "skip"
// leaves out.
func TestVerifyListsDamagedFiles(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	shard(t, dir, "a.tar", 30)
	shard(t, dir, "b.tar", 30)
	if err := os.WriteFile(filepath.Join(dir, "c.tar"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, corrupt := range []string{"error", "skip"} {
		o := execute([]string{"data", "verify", dir, "--set", "data.corrupt=" + corrupt, "--set",
			"data.cache_dir=" + cache})
		if o.code != exit.Data || !strings.Contains(o.stdout, `c.tar": the file is empty`) ||
			!strings.Contains(o.stdout, "60 samples read") || !strings.Contains(o.stdout, "1 damaged part, whose samples") {
			t.Errorf("%s: got exit code %d and %s%s, want 3 and c.tar", corrupt, o.code, o.stdout, o.stderr)
		}
	}
	var got data.Verified
	o := execute([]string{"data", "verify", dir, "--json", "--set", "data.cache_dir=" + cache})
	if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || len(got.LeftOut) != 1 || !got.LeftOut[0].Whole {
		t.Errorf("JSON: %v: %s", err, o.stdout)
	}
	o = execute([]string{"data", "inspect", dir, "--set", "data.corrupt=skip", "--set", "data.cache_dir=" + cache})
	if o.code != exit.Done || !strings.Contains(o.stdout, `c.tar": the file is empty`) {
		t.Errorf("inspect: got exit code %d and %s%s, want c.tar", o.code, o.stdout, o.stderr)
	}
}

// A run must end if more than one file and more than a tenth of the files are damaged.
func TestManyDamagedFilesEndTheRun(t *testing.T) {
	t.Parallel()
	p := buildProgram(t)
	for _, c := range []struct{ sound, empty, code int }{{18, 2, exit.Done}, {17, 3, exit.Data}, {2, 1, exit.Done}} {
		dir := t.TempDir()
		for k := range c.sound + c.empty {
			name := fmt.Sprintf("%02d.tar", k)
			if k < c.sound {
				shard(t, dir, name, 8)
			} else if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		says := fmt.Sprintf("%d of %d", c.empty, c.sound+c.empty)
		finish(t, p.command(t.TempDir(), "data.dataset=webdataset", "data.path="+dir, "data.num_samples=0",
			"data.batch_size=4", "train.steps=2", "data.val_fraction=0.1", "data.corrupt=skip",
			"data.cache_dir="+t.TempDir()), 0).check(t, c.code, says)
	}
}

// With data.corrupt = "skip", the program must still know the labels of texts. Class weights must work, and an
// evaluation must find samples that are also training samples.
func TestLabelledTextsThatSkipDamageHaveLabels(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	in := reviews(t, dir, "in.tsv", 100, []string{"good", "bad"})
	p.config = clitest.WriteConfig(t, smallClassifier(in, wordVocabulary(t, dir)))
	finish(t, p.command(dir, "train.epochs=1", "data.corrupt=skip", `train.class_weights=["balanced"]`), 0).check(t,
		exit.Done, "weights of the classes")
	if o := execute([]string{"eval", filepath.Join(dir, "run"), "--set", "data.val_path=" + in, "--set",
		"data.corrupt=skip"}); o.code != exit.Done ||
		!strings.Contains(o.stdout, "evaluated samples have the content of training samples") {
		t.Errorf("got exit code %d and\n%s%s", o.code, o.stdout, o.stderr)
	}
}
