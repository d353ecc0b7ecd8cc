package program

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/devices"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
)

func TestVersionSaysWhatIsMissingAndWhy(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HETERO_LIB_DIR", dir) // the folder contains no libraries
	o := execute([]string{"version", "--json"})
	var got struct {
		Version string
		Go      string
		Parts   []struct {
			Name, Reason string
			Available    bool
		}
	}
	if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || o.code != exit.Done ||
		got.Version != version.Build().Version || got.Go == "" {
		t.Fatalf("got exit code %d, %v: %+v", o.code, err, got)
	}
	there := map[string]bool{}
	for _, p := range got.Parts {
		there[p.Name] = p.Available
		if !p.Available && p.Reason == "" {
			t.Errorf("%s is missing without a reason", p.Name)
		}
		if p.Name == "cpu device" && (p.Available || !strings.Contains(p.Reason, dir)) {
			t.Errorf("got %+v, want that its library is not in %s", p, dir)
		}
	}
	for _, name := range []string{"reference device", "null device", "jpeg", "webp"} {
		if !there[name] {
			t.Errorf("%s: got that it is missing, want that no library is needed", name)
		}
	}
	text := execute([]string{"version"}).stdout
	if !strings.HasPrefix(text, version.Text()+"\n") || !strings.Contains(text, dir) {
		t.Errorf("got %q, want %q first, and where libraries are looked for", text, version.Text())
	}
	if short := execute([]string{"version", "--short"}).stdout; short != execute([]string{"--version"}).stdout {
		t.Errorf("--short: got %q, want what --version says", short)
	}
}

// HETERO_WEBP=go turns the system's libwebp off. Other values must not be ignored.
func TestTheDecoderOfWebPCanBeChosen(t *testing.T) {
	t.Parallel()
	p := buildProgram(t)
	run := func(value string, args ...string) ended {
		cmd := exec.Command(p.path, args...)
		cmd.Env = append(os.Environ(), "HETERO_WEBP="+value)
		return finish(t, cmd, 0)
	}
	var got struct {
		Parts []struct{ Name, Version, Reason string }
	}
	if err := json.Unmarshal([]byte(run("go", "version", "--json").stdout), &got); err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(got.Parts, func(p struct{ Name, Version, Reason string }) bool { return p.Name == "webp" })
	if at < 0 || got.Parts[at].Version != "Go" || got.Parts[at].Reason == "" {
		t.Errorf("got %+v, want Go and the reason", got.Parts)
	}
	run("GO", "version").check(t, exit.Usage, `HETERO_WEBP: got "GO", want go, or no value`)
	run("libwebp", "train", "-c", p.config, "--set", "experiment.output_dir="+t.TempDir()).check(t, exit.Usage,
		`HETERO_WEBP: got "libwebp", want go, or no value`)
}

func TestDevicesNeedNoLibrary(t *testing.T) {
	t.Setenv("HETERO_LIB_DIR", t.TempDir())
	o := execute([]string{"devices", "--json"})
	var got devices.Report
	if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || o.code != exit.Done {
		t.Fatalf("got exit code %d, %v", o.code, err)
	}
	if got.Host.Threads < 1 || got.Host.MemoryBytes <= 0 {
		t.Errorf("host: got %+v, want its CPUs and memory", got.Host)
	}
	if len(got.GPUs) == 0 && got.NoGPU == "" {
		t.Error("no GPU, and no reason")
	}
	for _, d := range got.Devices {
		switch {
		case d.Kind == "cpu" && (d.Available || d.Reason == "" || d.Auto):
			t.Errorf("got %+v, want a reason why there is none", d)
		case d.Kind == "reference" && (!d.Available || d.Auto || d.AutoPrecision != "f32" || d.MemoryBytes <= 0):
			t.Errorf("got %+v, want the reference device, which auto never takes", d)
		}
	}
	if text := execute([]string{"devices"}).stdout; !strings.Contains(text, "reference:0") ||
		!strings.Contains(text, "cpu: ") {
		t.Errorf("got %q, want every device or why there is none", text)
	}
}
