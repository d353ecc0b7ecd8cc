package program

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/data"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/data/datatest"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// shard writes a shard of n samples in 3 classes, and returns its path. The samples whose numbers are in damaged are
// damaged.
func shard(t *testing.T, dir, name string, n int, damaged ...int) string {
	t.Helper()
	var picture bytes.Buffer
	if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 12, 8))); err != nil {
		t.Fatal(err)
	}
	var members []datatest.Member
	for i := range n {
		contents := picture.String()
		for _, d := range damaged {
			if i == d {
				contents = contents[:len(contents)/2]
			}
		}
		members = append(members, datatest.File(fmt.Sprintf("%04d.png", i), contents),
			datatest.File(fmt.Sprintf("%04d.cls", i), fmt.Sprint(i%3)))
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, datatest.Tar(t, members...), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestInspectShowsWhatThereIs(t *testing.T) {
	dir := t.TempDir()
	shard(t, dir, "train-0.tar", 9)
	shard(t, dir, "train-1.tar", 4, 2)
	shard(t, dir, "val-0.tar", 3)
	o := execute([]string{"data", "inspect", dir, "--json", "--set", "data.cache_dir=" + t.TempDir()})
	var got data.Inspected
	if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || o.code != exit.Done {
		t.Fatalf("exit code %d, %v: %s%s", o.code, err, o.stdout, o.stderr)
	}
	if got.Dataset != "webdataset" || got.Classes != 3 || len(got.Parts) != 2 {
		t.Fatalf("got %+v, want shards of 3 classes in two parts", got)
	}
	train := got.Parts[0]
	if train.Samples != 13 || train.ByClass["0"] != 5 || train.Width != (data.Spread{Min: 12, Median: 12, Max: 12}) ||
		train.Height.Max != 8 || train.Kinds["png grey"] != 13 {
		t.Errorf("training part: got %+v", train)
	}
	o = execute([]string{"data", "inspect", dir, "--set", "data.max_classes=2", "--set", "data.samples_per_class=2",
		"--set", "data.cache_dir=" + t.TempDir()})
	if !strings.Contains(o.stdout, "train: 4 samples, 2 to 2 per class") ||
		!strings.Contains(o.stdout, "eval: 2 samples") {
		t.Errorf("two classes, two samples each: got %s%s", o.stdout, o.stderr)
	}
}

func TestVerifyListsWhatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	path := shard(t, dir, "a.tar", 300, 250, 7)
	args := []string{"data", "verify", path, "--set", "data.val_fraction=0", "--set", "data.cache_dir=" + t.TempDir()}
	o := execute(args)
	if o.code != exit.Data || strings.Index(o.stdout, "bad train 7 ") < 0 ||
		strings.Index(o.stdout, "bad train 250 ") < strings.Index(o.stdout, "bad train 7 ") ||
		!strings.Contains(o.stdout, "a.tar!0250.png") || !strings.Contains(o.stdout, "300 samples") ||
		!strings.Contains(o.stdout, "2 bad") {
		t.Errorf("got exit code %d and %s%s, want 3 and samples 7 and 250", o.code, o.stdout, o.stderr)
	}
	var got data.Verified
	o = execute(append(args, "--json", "--workers", "3"))
	if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || len(got.Bad) != 2 || got.Bad[1].Index != 250 ||
		got.Samples != 300 {
		t.Errorf("JSON: %v: %s", err, o.stdout)
	}
	few := append(args, "--json", "--set", "data.num_samples=290")
	o = execute(few)
	if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || got.Samples != 290 || len(got.Bad) == 0 ||
		got.Bad[len(got.Bad)-1].Index >= 250 {
		t.Errorf("of fewer samples: %v: %s, want the places among them", err, o.stdout)
	}
	if o := execute([]string{"data", "verify", shard(t, dir, "b.tar", 5), "--set",
		"data.cache_dir=" + t.TempDir()}); o.code != exit.Done {
		t.Errorf("sound data: got exit code %d and %s%s", o.code, o.stdout, o.stderr)
	}
	if o := execute([]string{"data", "verify", filepath.Join(dir, "none.tar"), "--set",
		"data.cache_dir=" + t.TempDir()}); o.code != exit.Data || !strings.Contains(o.stderr, "none.tar") {
		t.Errorf("no such shard: got exit code %d and %s", o.code, o.stderr)
	}
}

func TestRepackedShardsHoldTheSame(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out.tar.zst")
	in := shard(t, dir, "in.tar", 50)
	if o := execute([]string{"data", "repack", in, out}); o.code != exit.Done {
		t.Fatalf("got exit code %d and %s", o.code, o.stderr)
	}
	for _, path := range []string{in, out} {
		o := execute([]string{"data", "inspect", path, "--set", "data.val_fraction=0", "--set",
			"data.cache_dir=" + t.TempDir()})
		if !strings.Contains(o.stdout, "train: 50 samples, 16 to 17 per class") {
			t.Errorf("%s: got %s%s", path, o.stdout, o.stderr)
		}
	}
	if o := execute([]string{"data", "repack", in, out}); o.code != exit.Usage {
		t.Errorf("a result that exists: got exit code %d, want %d", o.code, exit.Usage)
	}
	if err := os.Truncate(out, 100); err != nil {
		t.Fatal(err)
	}
	if o := execute([]string{"data", "repack", out, filepath.Join(dir, "again.tar.zst")}); o.code != exit.Data {
		t.Errorf("a truncated shard: got exit code %d, want %d", o.code, exit.Data)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*again*"))
	if hidden, _ := filepath.Glob(filepath.Join(dir, ".repack*")); err != nil || len(left)+len(hidden) > 0 {
		t.Errorf("left behind: %q %q", left, hidden)
	}
}

// hugeShard returns the path of a valid tar. It contains so much sparse padding that its conversion takes some time.
func hugeShard(t *testing.T) string {
	t.Helper()
	path := shard(t, t.TempDir(), "huge.tar", 1)
	if err := os.Truncate(path, 64<<30); err != nil {
		needtest.Missing(t, "system", fmt.Errorf("sparse files: %w", err))
	}
	return path
}

func TestASignalLeavesNothingOfWhatIsRepacked(t *testing.T) {
	in := hugeShard(t)
	for sig, code := range map[syscall.Signal]int{syscall.SIGINT: exit.Interrupted, syscall.SIGTERM: exit.Terminated} {
		dir := t.TempDir()
		ended := make(chan outcome)
		go func() { ended <- execute([]string{"data", "repack", in, filepath.Join(dir, "out.tar.zst")}) }()
		for { // the command catches signals before it creates this file
			if left, err := os.ReadDir(dir); err != nil {
				t.Fatal(err)
			} else if len(left) > 0 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if err := sendTo(os.Getpid(), sig); err != nil {
			t.Fatal(err)
		}
		if o := <-ended; o.code != code || !strings.Contains(o.stderr, "stopped by SIG") {
			t.Errorf("%v: got exit code %d, want %d: %s", sig, o.code, code, o.stderr)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%v: left behind: %v %v", sig, left, err)
		}
	}
}

func TestARepackThatCannotBeWrittenIsExitCode7(t *testing.T) {
	if !inOwnMounts(t) {
		return
	}
	dir, in := smallDisk(t, "size=64k"), filepath.Join(t.TempDir(), "noise.tar")
	noise := make([]byte, 4<<20)
	rand.NewChaCha8([32]byte{}).Read(noise)
	if err := os.WriteFile(in, datatest.Tar(t, datatest.File("noise", noise)), 0o644); err != nil {
		t.Fatal(err)
	}
	if o := execute([]string{"data", "repack", in, filepath.Join(dir, "out.tar.zst")}); o.code != exit.IO ||
		!strings.Contains(o.stderr, "no space left on device; free space") {
		t.Errorf("got exit code %d and %s, want %d", o.code, o.stderr, exit.IO)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestOnlySoundTarsAreRepacked(t *testing.T) {
	dir := t.TempDir()
	text, to := filepath.Join(dir, "text.tar"), filepath.Join(dir, "out.tar.zst")
	if err := os.WriteFile(text, bytes.Repeat([]byte("no archive\n"), 1000), 0o644); err != nil {
		t.Fatal(err)
	}
	if o := execute([]string{"data", "repack", text, to}); o.code != exit.Data ||
		!strings.Contains(o.stderr, "not a tar archive") {
		t.Errorf("a text: got exit code %d and %s", o.code, o.stderr)
	}
	if _, err := os.Stat(to); err == nil {
		t.Error("a text was repacked")
	}
}

// Opening a named pipe would block the process forever, so the program must refuse it.
func TestNamedPipesAreRefused(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "shard.tar")
	if err := needtest.MakePipe(pipe); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"data", "inspect", pipe}, {"data", "inspect", "--dataset", "images", pipe},
		{"data", "verify", "--dataset", "webdataset", pipe},
		{"data", "repack", pipe, filepath.Join(t.TempDir(), "out")}, {"checkpoint", "inspect", pipe},
		{"checkpoint", "verify", pipe}} {
		late := time.AfterFunc(patience, func() { panic(fmt.Sprintf("%v waits for ever", args)) })
		if o := execute(args); o.code == exit.Done || o.code == exit.Unexpected {
			t.Errorf("%v: got exit code %d: %s%s", args, o.code, o.stdout, o.stderr)
		}
		late.Stop()
	}
}

func TestWorkersAreOfVerifyAndNotNegative(t *testing.T) {
	path := shard(t, t.TempDir(), "a.tar", 3)
	for _, args := range [][]string{{"data", "verify", path, "--workers", "-1"},
		{"data", "inspect", path, "--workers", "1"}} {
		if o := execute(args); o.code != exit.Usage || !strings.Contains(o.stderr, "--workers") {
			t.Errorf("%v: got exit code %d and %s", args, o.code, o.stderr)
		}
	}
}

func TestOnlyKnownDataSetsAreDownloaded(t *testing.T) {
	if o := execute([]string{"data", "download"}); o.code != exit.Usage ||
		!strings.Contains(o.stderr, "got 0 arguments [], want cifar10 or cifar100") {
		t.Errorf("no name: got exit code %d and %q", o.code, o.stderr)
	}
	if o := execute([]string{"data", "repack", "x.tar"}); o.code != exit.Usage ||
		!strings.Contains(o.stderr, `got 1 arguments ["x.tar"], want a shard and the file to write`) {
		t.Errorf("repack to nowhere: got exit code %d and %q", o.code, o.stderr)
	}
	if o := execute([]string{"data", "download", "imagenet"}); o.code != exit.Usage ||
		!strings.Contains(o.stderr, "account") {
		t.Errorf("got exit code %d and %s", o.code, o.stderr)
	}
}
