package program

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/run"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// jpegShard returns a tar of n samples with JPEG images in 3 classes.
func jpegShard(t *testing.T, n int) []byte {
	t.Helper()
	img := image.NewRGBA(image.Rect(0, 0, 24, 16))
	for i := range 24 * 16 {
		img.Set(i%24, i/24, color.RGBA{R: uint8(i * 7), G: uint8(i * 3), B: uint8(i), A: 255})
	}
	var picture, b bytes.Buffer
	if err := jpeg.Encode(&picture, img, nil); err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(&b)
	for i := range n {
		for name, contents := range map[string][]byte{fmt.Sprintf("%04d.jpg", i): picture.Bytes(),
			fmt.Sprintf("%04d.cls", i): []byte(fmt.Sprint(i % 3))} {
			if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(contents))}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(contents); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Truncated shards and shards with changed bits, plain and compressed, must be read, or refused with the exit code of
// faulty data. With data.corrupt = "skip", training must finish, or refuse the shard with the same exit code.
func TestDamagedShards(t *testing.T) {
	t.Parallel()
	trials := 30
	if needtest.Hostile.On() {
		trials = 1000
	}
	random := rand.New(rand.NewPCG(1, 2))
	plain := jpegShard(t, 12)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	config, dir := clitest.WriteConfig(t, smallRun), t.TempDir()
	codes := map[int]int{}
	for trial := range trials {
		name, text := "a.tar", slices.Clone(plain)
		if trial%2 == 1 {
			name, text = "a.tar.gz", slices.Clone(packed.Bytes())
		}
		if random.IntN(3) == 0 {
			text = text[:random.IntN(len(text))]
		}
		for range random.IntN(8) {
			if len(text) > 0 {
				text[random.IntN(len(text))] ^= 1 << random.IntN(8)
			}
		}
		own := filepath.Join(dir, fmt.Sprint(trial))
		path := filepath.Join(own, name)
		if err := os.MkdirAll(own, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
		cache := "data.cache_dir=" + filepath.Join(own, "cache")
		args := []string{"data", "verify", path, "--set", cache}
		if trial%4 >= 2 {
			args = []string{"-c", config, "--set", "data.dataset=webdataset", "--set", "data.path=" + path, "--set",
				cache, "--set", "data.corrupt=skip", "--set", "data.corrupt_limit=1000",
				"--set", "data.batch_size=2", "--set", "train.steps=2", "--set", "train.eval_interval=0", "--set",
				"data.workers=1", "--set", "experiment.output_dir=" + own}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var out, messages bytes.Buffer
		code := runLine(ctx, args, session.Environment{Stdout: &out, Stderr: &messages, Train: run.Train})
		late := ctx.Err()
		cancel()
		codes[code]++
		if late != nil || !slices.Contains([]int{exit.Done, exit.Usage, exit.Data}, code) ||
			strings.Contains(messages.String(), "panic") {
			t.Errorf("trial %d, %q: exit code %d, %v\n%s", trial, args, code, late, messages.String())
		}
		clitest.Harmless(t, fmt.Sprintf("trial %d", trial), out.String(), messages.String())
		if err := os.RemoveAll(own); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d trials, by exit code: %v", trials, codes)
	if codes[exit.Done] == 0 || codes[exit.Data] == 0 {
		t.Errorf("exit codes %v: want some shards read and some refused", codes)
	}
}
