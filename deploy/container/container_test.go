// Package container tests the files of the container images. `make test-long PARTS=container` builds and runs an image.
package container

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/hetero-train/hetero-train/engine/needtest"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// instruction is a line of a Containerfile: its first word, and the rest.
type instruction struct{ word, rest string }

// instructions returns the instructions of a Containerfile, without comments, with continued lines joined.
func instructions(text string) (list []instruction) {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	for line := range strings.SplitSeq(strings.ReplaceAll(strings.Join(lines, "\n"), "\\\n", " "), "\n") {
		word, rest, _ := strings.Cut(line, " ")
		list = append(list, instruction{word, strings.Join(strings.Fields(rest), " ")})
	}
	return list
}

// TestContainerfileHasTheFormThatEnginesAccept: buildah and docker build this form, and a build executes nothing.
func TestContainerfileHasTheFormThatEnginesAccept(t *testing.T) {
	list := instructions(read(t, "Containerfile"))
	allowed := []string{"FROM", "ARG", "COPY", "ENV", "LABEL", "USER", "WORKDIR", "VOLUME", "EXPOSE", "STOPSIGNAL",
		"ENTRYPOINT", "CMD"}
	arrays := []string{"VOLUME", "ENTRYPOINT", "CMD"} // the other form needs a shell
	var stages []string
	for _, i := range list {
		if !slices.Contains(allowed, i.word) {
			t.Errorf("%s %s: want one of %v", i.word, i.rest, allowed)
		}
		var array []string
		if slices.Contains(arrays, i.word) && (json.Unmarshal([]byte(i.rest), &array) != nil || len(array) == 0) {
			t.Errorf("%s %s: want an array", i.word, i.rest)
		}
		if name, ok := strings.CutPrefix(i.rest, "scratch AS "); i.word == "FROM" && ok {
			stages = append(stages, name)
		} else if i.word == "FROM" {
			base, name, _ := strings.Cut(i.rest, " AS ")
			if !slices.Contains(stages, base) {
				t.Errorf("FROM %s: want scratch or one of %v, because no registry is needed", i.rest, stages)
			}
			stages = append(stages, name)
		}
	}
	if !slices.Equal(stages, []string{"cpu", "cuda"}) {
		t.Errorf("got stages %v, want cpu, cuda", stages)
	}
	for _, want := range []instruction{{"USER", "65532:65532"}, {"VOLUME", `["/work", "/cache"]`},
		{"ENTRYPOINT", `["hetero-train"]`}, {"STOPSIGNAL", "SIGTERM"}, {"WORKDIR", "/work"}} {
		if !slices.Contains(list, want) {
			t.Errorf("there is no %s %s", want.word, want.rest)
		}
	}
}

func TestImageHasItsLabels(t *testing.T) {
	var labels []string
	for _, i := range instructions(read(t, "Containerfile")) {
		if i.word == "LABEL" {
			for _, found := range regexp.MustCompile(`org\.opencontainers\.image\.([a-z.]+)="([^"]+)"`).
				FindAllStringSubmatch(i.rest, -1) {
				labels = append(labels, found[1])
				name, isArgument := strings.CutPrefix(found[2], "$")
				if isArgument && !strings.Contains(read(t, "build.sh"), `--build-arg "`+name+"=") {
					t.Errorf("label %s: build.sh does not pass %s", found[1], name)
				}
			}
		}
	}
	for _, want := range []string{"title", "description", "source", "documentation", "licenses", "version", "revision",
		"created"} {
		if !slices.Contains(labels, want) {
			t.Errorf("there is no label %s, only %v", want, labels)
		}
	}
}

// composition has the parts of compose.yaml that this test reads; decoding refuses all other keys. The long test checks
// the file with compose-go and runs it.
type composition struct {
	Container any `yaml:"x-container"`
	Worker    any `yaml:"x-worker"`
	Services  map[string]struct {
		Image, User, Restart, Hostname string
		ReadOnly                       bool     `yaml:"read_only"`
		Init                           bool     `yaml:"init"`
		Grace                          string   `yaml:"stop_grace_period"`
		CapDrop                        []string `yaml:"cap_drop"`
		SecurityOpt                    []string `yaml:"security_opt"`
		Tmpfs, Command                 []string
		Volumes, Ports                 []string
		Secrets                        []string
		Environment                    map[string]string
		CPUs                           float64 `yaml:"cpus"`
		Memory                         string  `yaml:"mem_limit"`
		Health                         struct {
			Test              []string
			Interval, Timeout string
			StartPeriod       string `yaml:"start_period"`
		} `yaml:"healthcheck"`
	}
	Volumes map[string]any
	Secrets map[string]struct{ File string }
}

func TestComposeFileIsSafe(t *testing.T) {
	decoder := yaml.NewDecoder(strings.NewReader(read(t, "compose.yaml")))
	decoder.KnownFields(true)
	var c composition
	if err := decoder.Decode(&c); err != nil {
		t.Fatal(err)
	}
	if len(c.Services) != 3 {
		t.Fatalf("got %d services, want two workers and the dashboard", len(c.Services))
	}
	cpus := map[float64]bool{}
	for name, s := range c.Services {
		if !s.ReadOnly || !s.Init || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Contains(s.Tmpfs, "/tmp") ||
			!slices.Equal(s.SecurityOpt, []string{"no-new-privileges:true"}) || !strings.HasSuffix(s.User, ":-65532:65532}") {
			t.Errorf("%s: want a user, a read-only root, and no privileges: %+v", name, s)
		}
		if len(s.Health.Test) < 2 || s.Health.Test[0] != "CMD" || s.Health.Test[1] != "hetero-train" {
			t.Errorf("%s: got health check %q, want CMD hetero-train …: the image has no shell", name, s.Health.Test)
		}
		for _, volume := range s.Volumes {
			if from, _, _ := strings.Cut(volume, ":"); !hasKey(c.Volumes, from) {
				t.Errorf("%s: got volume %s, want one of %v", name, volume, c.Volumes)
			}
		}
		for _, secret := range s.Secrets {
			if c.Secrets[secret].File == "" {
				t.Errorf("%s: there is no file of secret %s", name, secret)
			}
		}
		for variable, value := range s.Environment {
			if !strings.HasSuffix(variable, "_FILE") || !strings.HasPrefix(value, "/run/secrets/") {
				t.Errorf("%s: got %s=%s, want secrets as files only", name, variable, value)
			}
		}
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "${HETERO_PUBLISH:-127.0.0.1:") {
				t.Errorf("%s: got port %s, want this machine only by default", name, port)
			}
		}
		if strings.HasPrefix(name, "worker") && s.Restart != "on-failure" {
			t.Errorf("%s: got restart %q, want on-failure without a limit, because Docker counts all restarts", name, s.Restart)
		}
		if s.Memory == "" || s.CPUs == 0 {
			t.Errorf("%s: there is no limit of memory or of CPUs", name)
		}
		if strings.HasPrefix(name, "worker") {
			cpus[s.CPUs] = true
		}
	}
	if len(cpus) != 2 {
		t.Errorf("got limits %v, want workers of unequal size", cpus)
	}
}

func hasKey(m map[string]any, key string) bool {
	_, ok := m[key]
	return ok
}

// TestSBOMListsAllParts gives sbom.py a small context, and reads the document as SPDX.
func TestSBOMListsAllParts(t *testing.T) {
	python := needtest.Program(t, "python3", "python3")
	context := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(context, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	licences := "release/share/doc/hetero-train/licences/"
	write(licences+"MANIFEST.tsv", "name\tversion\tlicence\tsource\tfolder of the texts\n"+
		"hetero-train\t0.1.0+g1234567\tApache-2.0\tthis project\t.\n"+
		"Go\tgo1.26.1\tBSD-3-Clause\tthe Go toolchain, linked into hetero-train\tgo\n"+
		"github.com/spf13/cobra\tv1.10.1\tApache-2.0\tGo module, linked into hetero-train\tgo/github.com/spf13/cobra\n"+
		"libgomp1\t10.2.1-6\tGPL-3.0-or-later WITH GCC-exception-3.1\tDebian 11 source package gcc-10 10.2.1-6\tlibgomp1\n"+
		"CUDA Runtime\t13.0.96\tLicenseRef-NVIDIA-CUDA-EULA\tPython wheel nvidia-cuda-runtime, linked\tcuda\n")
	write(licences+"cuda/License.txt", "terms of CUDA")
	write("base/etc/os-release", "NAME=\"Debian\"\nVERSION_ID=\"13\"\n")
	write("base/var/lib/dpkg/status.d/libc6", "Package: libc6\nArchitecture: amd64\nVersion: 2.41-12\n")
	write("base/var/lib/dpkg/status.d/tzdata", "Package: tzdata\nArchitecture: all\nVersion: 2025b-4\n")
	write("base/usr/share/doc/tzdata/copyright", "public domain")
	write("wheels", "nvidia_cublas-13.1.0.3-py3-none-manylinux_2_27_x86_64.whl\n")
	write("cuda/usr/share/doc/nvidia_cublas/License.txt", "terms of cuBLAS")
	list := func(kind string) []byte {
		t.Helper()
		cmd := exec.Command(python, "sbom.py", context, "0.1.0+g1234567", kind)
		cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1700000000")
		text, err := cmd.Output()
		if err != nil {
			t.Fatalf("sbom.py: %v: %s", err, err.(*exec.ExitError).Stderr)
		}
		return text
	}
	var document struct {
		SPDXVersion  string `json:"spdxVersion"`
		CreationInfo struct{ Created string }
		Packages     []struct {
			SPDXID, VersionInfo, LicenseDeclared string
			ExternalRefs                         []struct{ ReferenceLocator string }
		}
		Relationships []struct{ RelatedSPDXElement string }
		Texts         []struct{ LicenseID, ExtractedText string } `json:"hasExtractedLicensingInfos"`
	}
	text := list("cuda")
	if again := list("cuda"); !bytes.Equal(text, again) {
		t.Error("two calls gave different documents")
	}
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	var purls []string
	for _, p := range document.Packages {
		for _, r := range p.ExternalRefs {
			purls = append(purls, r.ReferenceLocator)
		}
		if !slices.ContainsFunc(document.Relationships, func(r struct{ RelatedSPDXElement string }) bool {
			return r.RelatedSPDXElement == p.SPDXID
		}) {
			t.Errorf("package %s is in no relationship", p.SPDXID)
		}
	}
	want := []string{"pkg:golang/github.com/hetero-train/hetero-train@0.1.0%2Bg1234567", "pkg:golang/stdlib@1.26.1",
		"pkg:golang/github.com/spf13/cobra@v1.10.1", "pkg:deb/debian/libgomp1@10.2.1-6?arch=amd64&distro=debian-11",
		"pkg:generic/cuda-runtime@13.0.96", "pkg:deb/debian/libc6@2.41-12?arch=amd64&distro=debian-13",
		"pkg:deb/debian/tzdata@2025b-4?arch=all&distro=debian-13", "pkg:pypi/nvidia-cublas@13.1.0.3"}
	if !slices.Equal(purls, want) {
		t.Errorf("got packages\n%s\nwant\n%s", strings.Join(purls, "\n"), strings.Join(want, "\n"))
	}
	if document.SPDXVersion != "SPDX-2.3" || document.CreationInfo.Created != "2023-11-14T22:13:20Z" ||
		len(document.Texts) != 3 || document.Texts[1].ExtractedText != "terms of CUDA" {
		t.Errorf("got %+v", document)
	}
	const together = "Apache-2.0 AND BSD-3-Clause AND GPL-2.0-or-later WITH GCC-exception-2.0 AND " +
		"GPL-3.0-or-later WITH GCC-exception-3.1 AND ISC AND LGPL-2.0-or-later AND LGPL-2.1-or-later AND " +
		"LicenseRef-Debian-public-domain AND LicenseRef-NVIDIA-CUDA-EULA AND LicenseRef-nvidia-cublas"
	if got := document.Packages[0].LicenseDeclared; got != together {
		t.Errorf("got licences of the image %q, want %q", got, together)
	}
	if bytes.Contains(list("cpu"), []byte("nvidia-cublas")) {
		t.Error("the list of the CPU image has NVIDIA's wheels")
	}
}

// TestScriptsOfContainers: shellcheck finds no fault, and the scripts refuse bad arguments before they change anything.
func TestScriptsOfContainers(t *testing.T) {
	needtest.Program(t, "bash", "bash")
	ended := func(cmd *exec.Cmd, code int, want string) {
		t.Helper()
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != code || !strings.Contains(string(out), want) {
			t.Errorf("%q: got exit code %d, %s, want %d, %q", cmd.Args, got, out, code, want)
		}
	}
	for _, c := range []struct {
		code    int
		want    string
		command []string
	}{
		{2, "got --gpu, want --cuda, --release FILE, --engine ENGINE or --help", []string{"./build.sh", "--gpu"}},
		{2, "got dist, want --cuda", []string{"./build.sh", "--cuda", "dist"}},
		{2, "--release: got no value", []string{"./build.sh", "--release"}},
		{2, "--engine: got 'kaniko', want buildah, podman or docker", []string{"./build.sh", "--engine", "kaniko"}},
		{2, "--engine: got ''", []string{"./build.sh", "--engine"}},
		{2, "got /nowhere/hetero-train-1-linux-x86_64.tar.gz, which is no file", []string{"./build.sh", "--release",
			"/nowhere/hetero-train-1-linux-x86_64.tar.gz"}},
		{0, "Exit codes: 0 the image is built; 1 ", []string{"./build.sh", "--help"}},
		{2, "got 0 arguments, want the archive of an image", []string{"./check.sh"}},
		{2, "got --fast, want the archive of an image", []string{"./check.sh", "--fast"}},
		{2, "got /nowhere/image.tar.gz, which is no file", []string{"./check.sh", "/nowhere/image.tar.gz"}},
		{0, "Exit codes: 0 all checks passed; 1 ", []string{"./check.sh", "--help"}},
	} {
		ended(exec.Command("bash", c.command...), c.code, c.want)
	}
	// Both kinds of releases have one name. The path is relative to the folder of the caller.
	const name = "hetero-train-1-linux-x86_64"
	for content, c := range map[string]struct {
		options []string
		want    string
	}{
		"libhetero_cuda.so": {nil, "which the image for CPUs does not need; run: make dist"},
		"libhetero_cpu.so":  {[]string{"--cuda"}, "has no GPU device; run: make dist CUDA=on"},
	} {
		folder := t.TempDir()
		library := filepath.Join(name, "lib", "hetero-train", content)
		if err := errors.Join(os.MkdirAll(filepath.Join(folder, filepath.Dir(library)), 0o755),
			os.WriteFile(filepath.Join(folder, library), nil, 0o644)); err != nil {
			t.Fatal(err)
		}
		script, err := filepath.Abs("build.sh")
		if err != nil {
			t.Fatal(err)
		}
		pack := exec.Command("tar", "-czf", name+".tar.gz", name)
		build := exec.Command("bash", append([]string{script, "--release", name + ".tar.gz"}, c.options...)...)
		pack.Dir, build.Dir = folder, folder
		if out, err := pack.CombinedOutput(); err != nil {
			t.Fatalf("tar: %v: %s", err, out)
		}
		ended(build, 2, c.want)
	}
	check := needtest.Program(t, "shellcheck", "shellcheck")
	cmd := exec.Command(check, "-S", "warning", "deploy/container/build.sh", "deploy/container/check.sh")
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("shellcheck: %v\n%s", err, out)
	}
}
