package program

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/cluster/porttest"
	"github.com/hetero-train/hetero-train/engine/data/datatest"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/objects"
	"github.com/hetero-train/hetero-train/engine/objects/s3test"
)

// storage is an S3 server that tests use.
type storage struct {
	environ []string
	double  *s3test.Server // nil: the server is SeaweedFS
}

// eachStorage runs a test with the server in memory. It repeats the test with SeaweedFS's server if this machine has
// it.
func eachStorage(t *testing.T, test func(t *testing.T, s storage)) {
	t.Run("double", func(t *testing.T) {
		double := s3test.New(t)
		s := storage{double: double}
		for name, value := range double.Environ() {
			s.environ = append(s.environ, name+"="+value)
		}
		test(t, s)
	})
	t.Run("SeaweedFS", func(t *testing.T) { test(t, seaweedFS(t)) })
}

// seaweedFS starts SeaweedFS's server with the buckets data and runs.
func seaweedFS(t *testing.T) storage {
	program := os.Getenv("HETERO_SEAWEEDFS")
	if program == "" {
		needtest.Missing(t, "seaweedfs", "HETERO_SEAWEEDFS is not set")
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "s3.json")
	text := fmt.Sprintf(
		`{"identities":[{"name":"test","credentials":[{"accessKey":%q,"secretKey":%q}],"actions":["Admin"]}]}`, s3test.KeyID, s3test.Secret)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"server", "-dir=" + dir, "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3",
		"-s3.config=" + config, "-volume.max=50", "-master.volumeSizeLimitMB=64"}
	var endpoint string
	for _, part := range []string{"master", "volume", "filer", "s3"} {
		port := porttest.Free(t)
		args = append(args, fmt.Sprintf("-%s.port=%d", part, port),
			fmt.Sprintf("-%s.port.grpc=%d", part, porttest.Free(t)))
		endpoint = fmt.Sprintf("http://127.0.0.1:%d", port)
	}
	w := watch(t, exec.Command(program, args...))
	t.Cleanup(func() {
		w.cmd.Process.Kill()
		w.cmd.Wait()
	})
	s := storage{environ: []string{"AWS_ENDPOINT_URL_S3=" + endpoint, "AWS_ACCESS_KEY_ID=" + s3test.KeyID,
		"AWS_SECRET_ACCESS_KEY=" + s3test.Secret, "AWS_REGION=" + s3test.Region, "AWS_SESSION_TOKEN=",
		"AWS_NO_SIGN_REQUEST="}}
	for _, entry := range s.environ {
		name, value, _ := strings.Cut(entry, "=")
		t.Setenv(name, value)
	}
	client, err := objects.Shared()
	if err != nil {
		t.Fatal(err)
	}
	for _, bucket := range []string{"data", "runs"} {
		for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
			if err = client.MakeBucket(t.Context(), bucket); err == nil {
				break
			} else if time.Now().After(end) {
				t.Fatal(err)
			}
		}
	}
	return s
}

// copyTo stores the files of a folder as objects below the URL to.
func copyTo(t *testing.T, folder, to string) {
	t.Helper()
	client, err := objects.Shared()
	if err != nil {
		t.Fatal(err)
	}
	name, err := objects.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		within, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		return client.PutBytes(t.Context(), name.Join(filepath.ToSlash(within)), body)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// jpegOf returns the JPEG image with number k. Images with different numbers differ.
func jpegOf(t *testing.T, k int) []byte {
	t.Helper()
	img := image.NewRGBA(image.Rect(0, 0, 20, 16))
	for y := range 16 {
		for x := range 20 {
			img.Set(x, y, color.RGBA{uint8(x * k), uint8(y*7 + k), uint8(k * 13), 255})
		}
	}
	var out bytes.Buffer
	if err := jpeg.Encode(&out, img, nil); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// objectData writes data sets of each form to a folder.
func objectData(t *testing.T, dir string) {
	t.Helper()
	write := func(name string, body []byte) {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, body, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	list := "file_name,label\n"
	for shard, name := range []string{"train-000000", "train-000001", "val-000000"} {
		var members []datatest.Member
		for k := range 8 {
			members = append(members, datatest.File(fmt.Sprintf("%d_%d.jpg", shard, k), jpegOf(t, 8*shard+k)),
				datatest.File(fmt.Sprintf("%d_%d.cls", shard, k), fmt.Sprint(k%2)))
			write(fmt.Sprintf("folder/%s/%d/%d.jpg", []string{"train", "train", "val"}[shard], k%2, 8*shard+k),
				jpegOf(t, 8*shard+k))
			write(fmt.Sprintf("list/images/%d.jpg", 8*shard+k), jpegOf(t, 8*shard+k))
			list += fmt.Sprintf("images/%d.jpg,%d\n", 8*shard+k, k%2)
		}
		write("shards/"+name+".tar", datatest.Tar(t, members...))
	}
	write("list/metadata.csv", []byte(list))
}

// sums returns the hash of the weights of the newest checkpoint of a run, and its records of losses.
func sums(t *testing.T, run string) string {
	t.Helper()
	newest, err := filepath.Glob(filepath.Join(run, "checkpoints", "step-*", "model.safetensors"))
	if err != nil || len(newest) == 0 {
		t.Fatal(run, err)
	}
	slices.Sort(newest)
	body, err := os.ReadFile(newest[len(newest)-1])
	if err != nil {
		t.Fatal(err)
	}
	records, err := os.ReadFile(filepath.Join(run, "logs", "rank_0_metrics.json"))
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("%x", sha256.Sum256(body))
	for part := range strings.SplitSeq(string(records), ",") {
		if strings.HasPrefix(part, `"loss":`) {
			text += " " + part
		}
	}
	return text
}

func (s storage) run(t *testing.T, dir string, args ...string) (out string, code int) {
	t.Helper()
	p := buildProgram(t)
	cmd := exec.Command(p.path, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), s.environ...)
	text, _ := cmd.CombinedOutput() // the exit code is checked instead of the error
	if strings.Contains(string(text), s3test.Secret) {
		t.Errorf("the output contains the secret key: %s", text)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

var objectModel = append([]string{"train", "--model", "simple_cnn"}, set("device.kind=reference", "model.channels=[2]",
	"data.image_size=8", "data.batch_size=4")...)

func TestDataOfABucketTrainLikeTheLocalFiles(t *testing.T) {
	eachStorage(t, func(t *testing.T, s storage) {
		dir := t.TempDir()
		objectData(t, filepath.Join(dir, "d"))
		copyTo(t, filepath.Join(dir, "d"), "s3://data/d")
		copyTo(t, tables+"images_parquet", "s3://data/d/images_parquet")
		copyTo(t, tables+"images_disk", "s3://data/d/images_disk")
		if err := os.CopyFS(filepath.Join(dir, "d", "images_parquet"), os.DirFS(tables+"images_parquet")); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(filepath.Join(dir, "d", "images_disk"), os.DirFS(tables+"images_disk")); err != nil {
			t.Fatal(err)
		}
		for k, c := range []struct{ dataset, path string }{{"webdataset", "shards"},
			{"webdataset", "shards/train-{000000..000001}.tar::%s/shards/val-000000.tar"}, {"images", "folder"},
			{"huggingface", "list"}, {"huggingface", "images_parquet"}, {"huggingface", "images_disk"}} {
			var results []string
			for n, place := range []string{"d", "s3://data/d", "s3://data/d"} {
				path := place + "/" + strings.ReplaceAll(c.path, "%s", place)
				name := fmt.Sprintf("%d-%d", k, n)
				kept := []string{"0", "0", "100"}[n]
				out, code := s.run(t, dir, append(objectModel, set("data.dataset="+c.dataset, "data.path="+path,
					"train.steps=6", "data.cache_dir=cache-"+name, "data.object_cache_mb="+kept,
					"experiment.name="+name)...)...)
				if code != exit.Done {
					t.Fatalf("%s: exit %d: %s", path, code, out)
				}
				if n > 0 && !strings.Contains(out, "requests to the object storage") {
					t.Errorf("%s: the log has no requests: %s", path, out)
				}
				blocks, err := filepath.Glob(filepath.Join(dir, "cache-"+name, "objects", "*", "[0-9]*"))
				if err != nil || (len(blocks) > 0) != (n == 2) {
					t.Errorf("%s: the cache of %s MiB has %d blocks: %v", path, kept, len(blocks), err)
				}
				results = append(results, sums(t, filepath.Join(dir, "experiments", name)))
			}
			if results[0] != results[1] || results[0] != results[2] || !strings.Contains(results[0], "loss") {
				t.Errorf("%s %s: the results differ:\n%s", c.dataset, c.path, strings.Join(results, "\n"))
			}
		}
	})
}

func TestARunResumesFromABucketWithoutItsFolder(t *testing.T) {
	eachStorage(t, func(t *testing.T, s storage) {
		dir := t.TempDir()
		common := append(slices.Clone(objectModel), set("data.num_samples=40", "checkpoint.upload=s3://runs/all",
			"checkpoint.keep=2")...)
		steps := func(n int, name string, more ...string) []string {
			return append(append(slices.Clone(common), set(fmt.Sprint("train.steps=", n), "experiment.name="+name)...),
				more...)
		}
		first, second := filepath.Join(dir, "a"), filepath.Join(dir, "b")
		for _, d := range []string{first, second} {
			if err := os.Mkdir(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if out, code := s.run(t, first, steps(12, "whole")...); code != exit.Done {
			t.Fatalf("exit %d: %s", code, out)
		}
		if out, code := s.run(t, first, steps(6, "cut", set("checkpoint.interval_steps=1")...)...); code != exit.Done {
			t.Fatalf("exit %d: %s", code, out)
		}
		client, err := objects.Shared()
		if err != nil {
			t.Fatal(err)
		}
		list, err := client.List(t.Context(), objects.Name{Bucket: "runs", Key: "all/cut/checkpoints/step-"})
		var manifests int
		for _, o := range list {
			if strings.HasSuffix(o.Name.Key, "/MANIFEST") {
				manifests++
			}
		}
		if err != nil || manifests < 1 || manifests > 2 {
			t.Errorf("the bucket has %d checkpoints, want at most 2: %v", manifests, err)
		}
		// A new run with the same name must not replace the checkpoints.
		out, code := s.run(t, second, steps(6, "cut", "--resume", "none")...)
		if code != exit.Usage || !strings.Contains(out, "has checkpoints of another run") {
			t.Errorf("exit %d: %s", code, out)
		}
		if out, code = s.run(t, second, steps(12, "cut")...); code != exit.Done ||
			!strings.Contains(out, "resuming after step 6") {
			t.Fatalf("exit %d: %s", code, out)
		}
		if out, code = s.run(t, second, append(steps(12, "named"), "--resume", "s3://runs/all/whole",
			"--set", "checkpoint.upload=", "--set", "train.steps=15")...); code != exit.Done ||
			!strings.Contains(out, "resuming after step 12") {
			t.Errorf("exit %d: %s", code, out)
		}
		whole, _, _ := strings.Cut(sums(t, filepath.Join(first, "experiments", "whole")), " ")
		resumed, _, _ := strings.Cut(sums(t, filepath.Join(second, "experiments", "cut")), " ")
		if whole != resumed {
			t.Error("the weights of the resumed run differ from those of the uninterrupted run")
		}
	})
}

func TestAFailedUploadEndsTheRunWithItsOwnCode(t *testing.T) {
	double := s3test.New(t)
	s := storage{double: double}
	for name, value := range double.Environ() {
		s.environ = append(s.environ, name+"="+value)
	}
	args := append(slices.Clone(objectModel), set("data.num_samples=40", "checkpoint.upload=s3://runs/all",
		"train.steps=4", "checkpoint.interval_steps=1")...)
	refuse := "/owner"
	double.Inject(func(r s3test.Request) *s3test.Fault {
		if r.Method == "PUT" && strings.Contains(r.Key, refuse) {
			return &s3test.Fault{Status: 403, Code: "AccessDenied"}
		}
		return nil
	})
	dir := t.TempDir()
	out, code := s.run(t, dir, args...) // the credentials allow only reads, so the run must not begin
	if code != exit.IO || !strings.Contains(out, "permit s3:PutObject") || strings.Contains(out, "step 1/4") {
		t.Errorf("exit %d, want %d: %s", code, exit.IO, out)
	}
	refuse = "/step-"
	out, code = s.run(t, dir, args...)
	if code != exit.IO || !strings.Contains(out, "permit s3:PutObject") || !strings.Contains(out, "on this machine is complete") {
		t.Errorf("exit %d, want %d: %s", code, exit.IO, out)
	}
	// The finished run starts again, and the network is temporarily lost.
	var puts atomic.Int64
	double.Inject(func(r s3test.Request) *s3test.Fault {
		if r.Method == "PUT" && puts.Add(1) < 4 {
			return &s3test.Fault{Close: true}
		}
		return nil
	})
	out, code = s.run(t, dir, append(args, "--set", "train.steps=8")...)
	if code != exit.Done || puts.Load() < 4 || !slices.Contains(double.Keys("runs"),
		"all/distributed_training/checkpoints/step-00000008/MANIFEST") {
		t.Errorf("exit %d, want %d: %s %q", code, exit.Done, out, double.Keys("runs"))
	}
}

func TestNamesOfObjectsAreRefusedWhereTheyMeanNothing(t *testing.T) {
	for _, c := range []struct{ setting, says string }{
		{"data.path=s3://key:secret@evil.example/x", "contains a password"},
		{"data.path=s3://evil.example:9000/x", "AWS_ENDPOINT_URL_S3"},
		{"data.path=s3://bucket/x?endpoint=evil", "AWS_ENDPOINT_URL_S3"},
		{"data.cache_dir=s3://bucket/x", "cannot be a URL"},
		{"checkpoint.upload=/folder", "want s3://BUCKET/FOLDER"},
		{"checkpoint.upload=gs://bucket/x", "want s3://BUCKET/FOLDER"},
		{"checkpoint.upload=https://bucket.example/x?X-Amz-Signature=secret", "want s3://BUCKET/FOLDER"},
		{"checkpoint.upload=s3://bucket/x#secret", "want s3://BUCKET/FOLDER"},
		{"data.path=https://bucket.example/x?X-Amz-Signature=secret", "cannot be a URL"},
	} {
		o := execute(append([]string{"train"}, set("data.dataset=images", c.setting)...))
		if o.code != exit.Usage || !strings.Contains(o.stderr, c.says) || strings.Contains(o.stderr, "secret") {
			t.Errorf("%s: exit %d, want %d and %q: %s", c.setting, o.code, exit.Usage, c.says, o.stderr)
		}
	}
}

// doubleStorage starts the server in memory.
func doubleStorage(t *testing.T) storage {
	s := storage{double: s3test.New(t)}
	for name, value := range s.double.Environ() {
		s.environ = append(s.environ, name+"="+value)
	}
	return s
}

func TestAResumeFromAnEarlierStepHoldsInTheBucket(t *testing.T) {
	s := doubleStorage(t)
	dir := t.TempDir()
	args := func(steps int, more ...string) []string {
		return append(append(slices.Clone(objectModel), set("data.num_samples=40", "checkpoint.upload=s3://runs/all",
			"checkpoint.keep=20", "checkpoint.interval_steps=1", "experiment.name=r", fmt.Sprint("train.steps=", steps))...),
			more...)
	}
	if out, code := s.run(t, dir, args(8)...); code != exit.Done {
		t.Fatalf("exit %d: %s", code, out)
	}
	// Except for the first requests, the uploads of the resumed run fail.
	s.double.Inject(func(r s3test.Request) *s3test.Fault {
		if r.Method == "PUT" && strings.Contains(r.Key, "/step-") && !strings.Contains(r.Key, "MANIFEST.") {
			return &s3test.Fault{Status: 403, Code: "AccessDenied"}
		}
		return nil
	})
	out, code := s.run(t, dir, args(5, "--resume", "experiments/r/checkpoints/step-00000003", "--set",
		"optimizer.lr=0.01", "--allow", "optimizer.lr")...)
	if code != exit.IO {
		t.Fatalf("exit %d, want %d: %s", code, exit.IO, out)
	}
	s.double.Inject(nil)
	out, code = s.run(t, dir, args(9, "--set", "optimizer.lr=0.01")...)
	if code != exit.Done || !strings.Contains(out, "resuming after step 5") {
		t.Errorf("exit %d, want a run that resumes after step 5: %s", code, out)
	}
}

func TestTwoRunsDoNotShareAFolder(t *testing.T) {
	s := doubleStorage(t)
	args := append(slices.Clone(objectModel), set("data.num_samples=40", "checkpoint.upload=s3://runs/all",
		"experiment.name=r", "train.steps=4")...)
	first, second := t.TempDir(), t.TempDir()
	if out, code := s.run(t, first, args...); code != exit.Done {
		t.Fatalf("exit %d: %s", code, out)
	}
	keys := s.double.Keys("runs")
	// A run must refuse the folder of another run, even if it resumes from another checkpoint.
	other := append(slices.Clone(objectModel), set("data.num_samples=40", "experiment.name=other", "train.steps=2")...)
	if out, code := s.run(t, second, other...); code != exit.Done {
		t.Fatalf("exit %d: %s", code, out)
	}
	out, code := s.run(t, second, append(args, "--resume", "experiments/other")...)
	if code != exit.Usage || !strings.Contains(out, "has checkpoints of another run") ||
		!slices.Equal(s.double.Keys("runs"), keys) {
		t.Errorf("exit %d, want %d: %s", code, exit.Usage, out)
	}
}

func TestASignalEndsARunThatWaitsForObjects(t *testing.T) {
	t.Parallel()
	s := storage{double: s3test.Start()} // only the environment of the run contains the server's address
	t.Cleanup(s.double.Close)
	for name, value := range s.double.Environ() {
		s.environ = append(s.environ, name+"="+value)
	}
	dir := t.TempDir()
	objectData(t, filepath.Join(dir, "d"))
	var members []datatest.Member
	body := jpegOf(t, 1)
	for k := range 3000 { // more objects than the run reads before the server stops answering
		members = append(members, datatest.File(fmt.Sprintf("%04d.jpg", k), body),
			datatest.File(fmt.Sprintf("%04d.cls", k), fmt.Sprint(k%2)))
	}
	s.double.Store("data", "train.tar", datatest.Tar(t, members...))
	p := buildProgram(t)
	cmd := exec.Command(p.path, append(slices.Clone(objectModel), set("data.dataset=webdataset",
		"data.path=s3://data/train.tar", "data.val_path=d/shards/val-000000.tar", "train.steps=1000",
		"data.object_cache_mb=0", "data.cache_dir=cache", "experiment.name=r")...)...)
	out, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	text := func() string {
		text, _ := os.ReadFile(out.Name())
		return string(text)
	}
	var waiting atomic.Int64
	s.double.Inject(func(r s3test.Request) *s3test.Fault {
		if r.Range != "" && strings.Contains(text(), "step 1/1000") {
			waiting.Add(1)
			return &s3test.Fault{Hold: true}
		}
		return nil
	})
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(os.Environ(), s.environ...), out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); waiting.Load() == 0; {
		if time.Sleep(10 * time.Millisecond); time.Now().After(end) {
			cmd.Process.Kill()
			cmd.Wait()
			t.Fatalf("the run requests no samples: %s", text())
		}
	}
	// The run waits for objects once the client has reported that the server does not answer, and no further step
	// follows.
	for steps, end := -1, time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Second) {
		now := strings.Count(text(), "\nstep ")
		if now == steps && strings.Contains(text(), " does not answer: ") {
			break
		}
		steps = now
	}
	cmd.Process.Signal(syscall.SIGTERM)
	killer := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer killer.Stop()
	cmd.Wait() // the exit code is checked instead of the error
	if cmd.ProcessState.ExitCode() != exit.Terminated || !strings.Contains(text(), "waited for objects") {
		t.Errorf("exit %d, want %d within %v: %s", cmd.ProcessState.ExitCode(), exit.Terminated, patience, text())
	}
}

func TestALocalListOfObjectsUsesTheCache(t *testing.T) {
	s := doubleStorage(t)
	dir := t.TempDir()
	objectData(t, filepath.Join(dir, "d"))
	copyTo(t, filepath.Join(dir, "d"), "s3://data/d")
	list := "s3://data/d/shards/train-000000.tar\ns3://data/d/shards/train-000001.tar\n"
	if err := os.WriteFile(filepath.Join(dir, "train.txt"), []byte(list), 0o644); err != nil {
		t.Fatal(err)
	}
	out, code := s.run(t, dir, append(slices.Clone(objectModel), set("data.dataset=webdataset", "data.path=train.txt",
		"data.val_path=d/shards/val-000000.tar", "train.steps=6", "data.cache_dir=cache", "experiment.name=r")...)...)
	blocks, err := filepath.Glob(filepath.Join(dir, "cache", "objects", "*", "[0-9]*"))
	if code != exit.Done || err != nil || len(blocks) != 2 {
		t.Errorf("exit %d; the cache has %d blocks, want 2: %v %s", code, len(blocks), err, out)
	}
}
