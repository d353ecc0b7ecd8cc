package program

import (
	"bytes"
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
	"github.com/hetero-train/hetero-train/engine/data/datatest"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// jpegShard returns a tar of n samples with JPEG images in 3 classes.
func jpegShard(t *testing.T, n int) []byte {
	t.Helper()
	img := image.NewRGBA(image.Rect(0, 0, 24, 16))
	for i := range 24 * 16 {
		img.Set(i%24, i/24, color.RGBA{R: uint8(i * 7), G: uint8(i * 3), B: uint8(i), A: 255})
	}
	var picture bytes.Buffer
	if err := jpeg.Encode(&picture, img, nil); err != nil {
		t.Fatal(err)
	}
	var members []datatest.Member
	for i := range n {
		members = append(members, datatest.File(fmt.Sprintf("%04d.jpg", i), picture.Bytes()),
			datatest.File(fmt.Sprintf("%04d.cls", i), fmt.Sprint(i%3)))
	}
	return datatest.Tar(t, members...)
}

// The program must read or refuse damaged shards: truncated ones and ones with changed bits, plain and compressed. A
// refusal must have the exit code of faulty data. With data.corrupt = "skip", training must finish, or refuse the shard
// with the same exit code.
func TestDamagedShards(t *testing.T) {
	t.Parallel()
	trials := 30
	if needtest.Hostile.On() {
		trials = 1000
	}
	random := rand.New(rand.NewPCG(1, 2))
	plain := jpegShard(t, 12)
	packed := datatest.Gzip(t, plain)
	config, dir := clitest.WriteConfig(t, smallRun), t.TempDir()
	codes := map[int]int{}
	for trial := range trials {
		name, text := "a.tar", slices.Clone(plain)
		if trial%2 == 1 {
			name, text = "a.tar.gz", slices.Clone(packed)
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
