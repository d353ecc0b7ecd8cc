// Package cloud tests the files of this folder without a cloud.
package cloud

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, name := range programs {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip("needs ", name)
		}
	}
}

// metadata is a metadata service of EC2 (version 2). Each token is valid for a limited number of requests.
type metadata struct {
	tokens, asked atomic.Int64
	notices       map[string]int64 // by path: number of the first request that gets the notice; the others get 404
}

func (m *metadata) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodPut && r.URL.Path == "/latest/api/token":
		if r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds") == "" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		m.tokens.Add(1)
		io.WriteString(w, "AQAEA-token==")
	case r.Header.Get("X-aws-ec2-metadata-token") != "AQAEA-token==":
		w.WriteHeader(http.StatusUnauthorized)
	case m.asked.Add(1) == 2: // the token has expired
		w.WriteHeader(http.StatusUnauthorized)
	default:
		if from, is := m.notices[r.URL.Path]; !is || m.asked.Load() < from {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		io.WriteString(w, `{"action": "terminate", "time": "2026-11-30T08:22:00Z"}`)
	}
}

const (
	action    = "/latest/meta-data/spot/instance-action"
	rebalance = "/latest/meta-data/events/recommendations/rebalance"
)

func TestASpotNoticeRunsTheCommandOnce(t *testing.T) {
	need(t, "sh", "curl")
	for _, c := range []struct {
		name, variable, want string
		notices              map[string]int64
	}{
		{"an interruption", "SPOT_REBALANCE=0", action, map[string]int64{action: 6}},
		{"a rebalance recommendation", "SPOT_REBALANCE=1", rebalance, map[string]int64{rebalance: 6}},
		{"an unwanted recommendation", "SPOT_REBALANCE=0", action, map[string]int64{rebalance: 1, action: 6}},
		// the training was started in spite of it
		{"a recommendation before the start", "SPOT_REBALANCE=1", action, map[string]int64{rebalance: 1, action: 8}},
	} {
		t.Run(c.name, func(t *testing.T) {
			service := &metadata{notices: c.notices}
			server := httptest.NewServer(service)
			defer server.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			ran := filepath.Join(t.TempDir(), "ran")
			cmd := exec.CommandContext(ctx, "ec2/spot-watch.sh", "sh", "-c", `echo once >>"$0"; exit 7`, ran)
			cmd.Env = append(os.Environ(), "AWS_EC2_METADATA_SERVICE_ENDPOINT="+server.URL+"/", "SPOT_INTERVAL=0.05",
				c.variable)
			said, _ := cmd.CombinedOutput()
			text, err := os.ReadFile(ran)
			if cmd.ProcessState.ExitCode() != 7 || err != nil || string(text) != "once\n" {
				t.Fatalf("got exit code %d, %q, %v, want that of the command: %s", cmd.ProcessState.ExitCode(), text,
					err, said)
			}
			if !strings.Contains(string(said), c.want+`: {"action": "terminate"`) || strings.Contains(string(said), "AQAEA") {
				t.Errorf("got %q, want the notice of %s, and no token", said, c.want)
			}
			if got := service.tokens.Load(); got != 2 {
				t.Errorf("got %d tokens, want 2: one at the start, and one after the first has expired", got)
			}
		})
	}
}

// Without a metadata service, as on other machines, the watcher waits, says so once, and runs nothing.
func TestNoMetadataService(t *testing.T) {
	need(t, "sh", "curl")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if asked.Add(1) == 4 {
			cancel()
		}
		panic(http.ErrAbortHandler) // closes the connection
	}))
	defer server.Close()
	ran := filepath.Join(t.TempDir(), "ran")
	cmd := exec.CommandContext(ctx, "ec2/spot-watch.sh", "touch", ran)
	cmd.Env = append(os.Environ(), "AWS_EC2_METADATA_SERVICE_ENDPOINT="+server.URL, "SPOT_INTERVAL=0.05")
	cmd.WaitDelay = 30 * time.Second
	said, _ := cmd.CombinedOutput()
	if asked.Load() < 4 {
		t.Errorf("the watcher asked %d times, want 4: %q", asked.Load(), said)
	}
	if _, err := os.Stat(ran); err == nil || strings.Count(string(said), "no answer of the metadata service") != 1 {
		t.Errorf("got %q, want one message and no command", said)
	}
}

// refused runs a script, which must end with exit code 2 and this text.
func refused(t *testing.T, want string, environ []string, script string, arguments ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, script, arguments...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, environ...)
	said, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(said), want) ||
		strings.Count(string(said), "\n") != 1 {
		t.Errorf("%s %q %q: got exit code %d, %q, want 2 and one line, %q", script, arguments, environ,
			cmd.ProcessState.ExitCode(), said, want)
	}
}

func TestTheWatcherRefusesWrongSettings(t *testing.T) {
	need(t, "sh", "curl")
	const watcher = "ec2/spot-watch.sh"
	refused(t, "got no command", nil, watcher)
	refused(t, "got the option --interval", nil, watcher, "--interval", "5")
}

// A setting that the watcher cannot use does not leave the training without a watcher.
func TestTheWatcherWarnsOfWrongSettings(t *testing.T) {
	need(t, "sh", "curl")
	service := &metadata{notices: map[string]int64{action: 1}}
	service.asked.Store(2) // the token does not expire
	server := httptest.NewServer(service)
	defer server.Close()
	watch := func(environ, command string) (string, int) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "ec2/spot-watch.sh", command)
		// the first look finds the notice, so no case waits
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "AWS_EC2_METADATA_SERVICE_ENDPOINT=" + server.URL, environ}
		said, _ := cmd.CombinedOutput()
		return string(said), cmd.ProcessState.ExitCode()
	}
	for _, c := range []struct{ setting, want string }{
		{"SPOT_INTERVAL=0.0", "SPOT_INTERVAL: got '0.0'"},
		{"SPOT_INTERVAL=1.2.3", "SPOT_INTERVAL: got '1.2.3'"},
		{"SPOT_INTERVAL=s", "SPOT_INTERVAL: got 's'"},
		{"SPOT_INTERVAL=0.5", ""},
		{"SPOT_REBALANCE=yes", "SPOT_REBALANCE: got 'yes', want 0 or 1"},
	} {
		said, code := watch(c.setting, "true")
		if code != 0 || !strings.Contains(said, c.want) || strings.Contains(said, "warning") != (c.want != "") {
			t.Errorf("%s: got exit code %d, %q, want the command and the warning %q", c.setting, code, said, c.want)
		}
	}
	if exec.Command("sleep", "0s").Run() == nil {
		if said, code := watch("SPOT_INTERVAL=1m", "true"); code != 0 || strings.Contains(said, "warning") {
			t.Errorf("an interval in minutes: got exit code %d, %q, want no warning", code, said)
		}
	}
	if said, code := watch("", "no-such-program"); code != 127 || !strings.Contains(said, "no command no-such-program yet") {
		t.Errorf("a missing command: got exit code %d, %q, want 127 and a warning", code, said)
	}
}

// User data contain the files of this folder byte for byte, and no token.
func TestUserDataOfEC2(t *testing.T) {
	need(t, "sh", "sed")
	hash := strings.Repeat("0123456789abcdef", 4)
	cmd := exec.Command("ec2/user-data.sh")
	cmd.Env = append(os.Environ(), "RELEASE=https://example.com/it's.tar.gz", "SHA256="+hash+"  it's.tar.gz", `TRAIN_ARGUMENTS=-c configs/resnet50.toml --set a.b="$x y"`,
		"TOKEN_COMMAND=print-token 'a' # of the run")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"hetero-train.service", "hetero-spot.service", "spot-watch.sh"} {
		text, err := os.ReadFile("ec2/" + name)
		if err != nil {
			t.Fatal(err)
		}
		var block strings.Builder
		for line := range strings.Lines(string(text)) {
			if line != "\n" {
				block.WriteString("      ")
			}
			block.WriteString(line)
		}
		if !strings.Contains(string(out), block.String()) {
			t.Errorf("%s is not in the user data", name)
		}
	}
	for _, want := range []string{`'https://example.com/it'\''s.tar.gz'`, "HETERO_TOKEN_FILE=/etc/hetero-train/token",
		`(umask 077; sh -c 'print-token '\''a'\'' # of the run' >/etc/hetero-train/token)`,
		`TRAIN_ARGUMENTS="-c configs/resnet50.toml --set a.b=\"\$x y\""`, `echo "` + hash + `  $archive" | sha256sum -c -`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the user data lack %q", want)
		}
	}
	const most = 16 << 10 // a limit of EC2
	if len(out) > most {
		t.Errorf("got %d bytes, want at most %d", len(out), most)
	}
}

// Values that would change the YAML or the scripts are refused, and the others arrive.
func TestUserDataOfEC2RefuseWrongValues(t *testing.T) {
	need(t, "sh", "sed", "grep")
	const script = "ec2/user-data.sh"
	hash := strings.Repeat("0123456789abcdef", 4)
	usual := map[string]string{"RELEASE": "https://example.com/a", "SHA256": hash, "TRAIN_ARGUMENTS": "-c x"}
	for _, c := range []struct{ name, value, want string }{
		{"RELEASE", "", "RELEASE: not set"},
		{"RELEASE", `https://example.com/"a`, "without spaces, quotes and backslashes"},
		{"RELEASE", "https://example.com/a\noutput = /etc/passwd", "RELEASE: got a line break"},
		{"RELEASE", "file:///etc/shadow", "want an address that begins with https://"},
		{"SHA256", "", "SHA256: not set"},
		{"SHA256", hash[1:], "want 64 hexadecimal digits"},
		{"SHA256", hash + "\n$(reboot)", "SHA256: got a line break"},
		{"TRAIN_ARGUMENTS", "", "TRAIN_ARGUMENTS: not set"},
		{"TRAIN_ARGUMENTS", "-c x\nruncmd: [reboot]", "TRAIN_ARGUMENTS: got a line break"},
		{"TRAIN_ARGUMENTS", "-c x\r", "TRAIN_ARGUMENTS: got a control character"},
		{"TRAIN_ARGUMENTS", "-c x\u2028y", "TRAIN_ARGUMENTS: got a control character"},
		{"TRAIN_ARGUMENTS", "-c x\u0085y", "TRAIN_ARGUMENTS: got a control character"},
		{"TRAIN_ARGUMENTS", `-c "x`, "want each quote closed"},
		{"TRAIN_ARGUMENTS", `-c 'x\'`, "want each quote closed"},
		{"TRAIN_ARGUMENTS", `-c x\`, "a character after each backslash"},
		{"TRAIN_ARGUMENTS", strings.Repeat("x", 16<<10), "and EC2 takes 16384"},
		{"TOKEN_COMMAND", "a\nb", "TOKEN_COMMAND: got a line break"},
		{"TOKEN_COMMAND", "echo 'x", "TOKEN_COMMAND: got a text with an error of syntax"},
	} {
		environ := []string{c.name + "=" + c.value}
		for name, value := range usual {
			if name != c.name {
				environ = append(environ, name+"="+value)
			}
		}
		refused(t, c.want, environ, script)
	}
	refused(t, "got the argument --release", nil, script, "--release")
	for _, c := range []struct {
		arguments, want string
		warns           bool // a shell would split it otherwise
	}{
		{"--set data.path=/Größe/中", `"--set data.path=/Größe/中"`, false},
		{`--set "data.path=\"/data/my images\""`, `"--set \"data.path=\\\"/data/my images\\\"\""`, false},
		{`--set 'data.path="/data/my images"' -c 'it'\''s'`,
			`"--set 'data.path=\"/data/my images\"' -c 'it'\\''s'"`, false},
		{`--set 'a.b="x\\y"'`, `"--set 'a.b=\"x\\\\y\"'"`, true},
		{`--set "a.b='x\y'"`, `"--set \"a.b='x\\y'\""`, true},
	} {
		cmd := exec.Command(script)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "RELEASE=https://example.com/a", "SHA256=" + hash,
			"TRAIN_ARGUMENTS=" + c.arguments}
		var said bytes.Buffer
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil || !strings.Contains(string(out), "TRAIN_ARGUMENTS="+c.want+"\n") ||
			strings.Contains(said.String(), "systemd removes a backslash") != c.warns {
			t.Errorf("%s: got %v, %s, %s, want %s", c.arguments, err, said.String(), out, c.want)
		}
	}
}

// The installation repeats a failed download, and refuses an archive with another hash.
func TestInstallationOnEC2(t *testing.T) {
	need(t, "sh", "curl", "tar", "sha256sum")
	folder := t.TempDir()
	run := func(script string) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
		cmd.Dir = folder
		return cmd.CombinedOutput()
	}
	if out, err := run("mkdir a && echo program >a/program && tar -czf a.tar.gz a"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	archive, err := os.ReadFile(filepath.Join(folder, "a.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.Write(archive)
	}))
	defer server.Close()
	for _, c := range []struct {
		hash  string
		wrong bool
	}{{fmt.Sprintf("%x", sha256.Sum256(archive)), false}, {strings.Repeat("0", 64), true}} {
		asked.Store(0)
		cmd := exec.Command("ec2/user-data.sh")
		cmd.Env = append(os.Environ(), "RELEASE="+server.URL+"/a?X-Amz-Signature=1&Y=%20", "SHA256="+c.hash, "TRAIN_ARGUMENTS=-c x")
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		_, script, found := strings.Cut(string(out), "      archive=/opt/hetero-train/release.tar.gz\n")
		script, _, end := strings.Cut(script, "      install -d")
		if !found || !end {
			t.Fatalf("no installation in %s", out)
		}
		into := t.TempDir()
		script = "set -eu\narchive=" + into + "/release.tar.gz\nsleep() { echo waits $1; }\n" +
			strings.ReplaceAll(script, "/opt/hetero-train", into)
		said, err := run(script)
		_, missing := os.Stat(filepath.Join(into, "program"))
		if (err != nil) != c.wrong || (missing != nil) != c.wrong || !strings.Contains(string(said), "waits 30") {
			t.Errorf("a wrong hash: %v: got %v, %v: %s", c.wrong, err, missing, said)
		}
	}
}

func TestRequestOfSageMaker(t *testing.T) {
	need(t, "python3")
	usual := []string{"sagemaker/launch.py", "--print", "--name", "run-1", "--image", "IMAGE", "--role",
		"arn:aws:iam::123456789012:role/R", "--bucket", "bucket",
		"--group", "gpus:ml.g5.12xlarge:1"}
	out, err := exec.Command("python3", append(usual, "--group", "cpus:ml.c5.9xlarge:2", "--token", "s3://bucket/token", "--spot",
		"--hyperparameter", "train.steps=30", "--", "-c", "configs/resnet50.toml")...).Output()
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		AlgorithmSpecification struct{ ContainerEntrypoint, ContainerArguments []string }
		CheckpointConfig       struct{ LocalPath, S3Uri string }
		ResourceConfig         struct {
			InstanceGroups []struct {
				InstanceType  string
				InstanceCount int
			}
		}
		HyperParameters           map[string]string
		EnableManagedSpotTraining bool
		StoppingCondition         struct{ MaxRuntimeInSeconds, MaxWaitTimeInSeconds int }
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	if strings.Join(r.AlgorithmSpecification.ContainerEntrypoint, " ") != "hetero-train train --sagemaker" ||
		strings.Join(r.AlgorithmSpecification.ContainerArguments, " ") != "-c configs/resnet50.toml" ||
		r.CheckpointConfig.LocalPath != "/opt/ml/checkpoints" || r.CheckpointConfig.S3Uri != "s3://bucket/checkpoints/run-1" ||
		len(r.ResourceConfig.InstanceGroups) != 2 || r.ResourceConfig.InstanceGroups[1].InstanceCount != 2 ||
		r.HyperParameters["train.steps"] != "30" || !r.EnableManagedSpotTraining ||
		r.StoppingCondition.MaxWaitTimeInSeconds != 48*3600 {
		t.Errorf("got %s", out)
	}
}

func TestRequestsThatSageMakerWouldRefuse(t *testing.T) {
	need(t, "python3")
	const role, token = "arn:aws:iam::123456789012:role/R", "s3://bucket/token"
	usual := []string{"--name", "run-1", "--image", "IMAGE", "--role", role, "--bucket", "bucket", "--group",
		"gpus:ml.g5.12xlarge:1"}
	with := func(option, value string) []string { // usual with another value
		list := slices.Clone(usual)
		list[slices.Index(list, option)+1] = value
		return list
	}
	add := func(more ...string) []string { return append(slices.Clone(usual), more...) }
	times := func(n int, more func(i int) []string) []string {
		list := slices.Clone(usual)
		for i := range n {
			list = append(list, more(i)...)
		}
		return list
	}
	cases := []struct {
		arguments []string
		want      string // part of the error; "": no error
	}{
		{add("--", "-c", "x", "--", "y"), ""},
		{add("--channel", "data=s3://bucket", "--token", token, "--run", "a/b", "--region", "eu-central-1"), ""},
		{with("--name", strings.Repeat("a", 63)), ""},
		{with("--name", strings.Repeat("a", 64)), "--name: got 'aaa"},
		{with("--name", "a"+strings.Repeat("-", 62)+"b"), "want at most 63 letters"},
		{with("--name", "run_1"), "--name: got 'run_1', want at most 63 letters"},
		{with("--name", "run-"), "--name: got 'run-'"},
		{with("--role", "ROLE"), "--role: got 'ROLE', want the ARN of a role"},
		{with("--image", "a b"), "--image: got 'a b'"},
		{with("--image", ""), "--image: got ''"},
		{with("--bucket", "bucket/team-a"), ""},
		{with("--bucket", "bucket/../a"), "--bucket: got '../a', want a name"},
		{with("--bucket", "bucket/"+strings.Repeat("a", 1015)), "--bucket, --run: got an address of checkpoints of"},
		{with("--bucket", "s3://bucket"), "--bucket: got 's3://bucket', want the name of a bucket"},
		{with("--group", "cpus:ml.c5.9xlarge"), "want NAME:TYPE:COUNT"},
		{with("--group", "cpus:ml.c5.9xlarge:0"), "want NAME:TYPE:COUNT"},
		{with("--group", strings.Repeat("g", 65)+":ml.c5.9xlarge:1"), "at most 64 characters"},
		{add("--group", "cpus:ml.c5.9xlarge:1"), "because 2 instances train together"},
		{times(5, func(i int) []string { return []string{"--group", fmt.Sprintf("g%d:ml.c5.xlarge:1", i)} }),
			"--group: given 6 times, want at most 5"},
		{add("--token", token, "--group", "gpus:ml.c5.large:1"), "--group: got 'gpus' twice"},
		{add("--channel", "a=s3://bucket/x", "--channel", "a=s3://bucket/y"), "--channel: got 'a' twice"},
		{add("--channel", "token=s3://bucket/x", "--token", token), "once from --token"},
		{times(20, func(i int) []string { return []string{"--channel", fmt.Sprintf("c%d=s3://bucket/x", i)} }), ""},
		{times(21, func(i int) []string { return []string{"--channel", fmt.Sprintf("c%d=s3://bucket/x", i)} }),
			"--channel: got 21"},
		{add("--token", token, "--token", token), "--token: given twice"},
		{add("--hours", "1", "--hours", "2"), "--hours: given twice: the second value is 2"},
		{add("--token", "token"), "--token: got 'token', want s3://"},
		{add("--token", "s3://bucket/"), "the address of one object"},
		{add("--channel", "a=/data"), "--channel: got '/data', want s3://"},
		{add("--channel", "a b=s3://bucket/x"), "got the channel 'a b'"},
		{add("--channel", "a=s3://bucket/"+strings.Repeat("x", 1024)), "at most 1024 characters"},
		{add("--hyperparameter", "a.b=1", "--hyperparameter", "a.b=2"), "--hyperparameter: got 'a.b' twice"},
		{add("--hyperparameter", "lr=1"), "want a key of the configuration"},
		{add("--hyperparameter", "a.b="+strings.Repeat("x", 2501)), "a value of 2501 characters, want at most 2500"},
		{add("--hyperparameter", "a.b=1\n2"), "without line breaks"},
		{times(101, func(i int) []string { return []string{"--hyperparameter", fmt.Sprintf("a.b%d=1", i)} }),
			"--hyperparameter: given 101 times"},
		{add("--hours", "0"), "--hours: got '0', want a whole number from 1 to 672"},
		{add("--hours", "673"), "--hours: got '673'"},
		{add("--spot", "--hours", "4", "--wait-hours", "3"), "--wait-hours: got 3, want at least --hours, 4"},
		{add("--spot", "--hours", "1"), "waits 48 h"},
		{add("--spot", "--hours", "30"), "waits 60 h"},
		{add("--wait-hours", "30"), "--wait-hours: got 30 without --spot"},
		{add("--volume", "-1"), "--volume"},
		{add("--volume", "16385"), "--volume: got '16385'"},
		{add("--subnet", "s"), "--subnet and --security-group: given 1 and 0 times"},
		{add("--run", "resnet50-lr=0.1 + @home/ü"), ""},
		{add("--run", "../other"), "--run: got '../other'"},
		{add("--run", "a//b"), "--run: got 'a//b'"},
		{add("--run", "a\nb"), "--run: got"},
		{add("--run", ""), "--run: got ''"},
		{add("train"), "unrecognized arguments: train"},
		{add("--wait", "5"), "unrecognized arguments: --wait 5"},
		{add("--", "--set", "a.b="+strings.Repeat("x", 256)), "want at most 256"},
		{append(add("--"), make([]string, 101)...), "got 101 arguments of hetero-train"},
	}
	// one process, because Python starts slowly
	cmd := exec.Command("python3", "-B", "-c", `import contextlib, io, json, sys
sys.path.insert(0, "sagemaker")
import launch
answers = []
for arguments in json.load(sys.stdin):
    error, code = io.StringIO(), 0
    with contextlib.redirect_stderr(error):
        try:
            waits = launch.request(launch.options(arguments))["StoppingCondition"].get("MaxWaitTimeInSeconds", 0)
            error.write(f"waits {waits // 3600} h" if waits else "")
        except SystemExit as e:
            code = e.code
    answers.append({"code": code, "error": error.getvalue()})
json.dump(answers, sys.stdout)`)
	var lists [][]string
	for _, c := range cases {
		lists = append(lists, c.arguments)
	}
	text, err := json.Marshal(lists)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin = bytes.NewReader(text)
	out, err := cmd.Output()
	var answers []struct {
		Code  int
		Error string
	}
	if err != nil || json.Unmarshal(out, &answers) != nil || len(answers) != len(cases) {
		t.Fatalf("got %q, %v, want %d answers", out, err, len(cases))
	}
	for i, c := range cases {
		code := 2
		if c.want == "" || strings.HasPrefix(c.want, "waits") {
			code = 0
		}
		if got := answers[i]; got.Code != code || !strings.Contains(got.Error, c.want) {
			t.Errorf("%.300q: got exit code %d, %q, want %d, %q", c.arguments, got.Code, got.Error, code, c.want)
		}
	}
}

// A fault of the settings of AWS ends with one line. The test replaces boto3, which most machines lack.
func TestFaultsOfAWSEndWithOneLine(t *testing.T) {
	need(t, "python3")
	// one process, because Python starts slowly
	cmd := exec.Command("python3", "-B", "-c", `import contextlib, io, json, sys, types
sys.path.insert(0, "sagemaker")
import launch
boto3, botocore, faults = (types.ModuleType(name) for name in ("boto3", "botocore", "botocore.exceptions"))
sys.modules.update({"boto3": boto3, "botocore": botocore, "botocore.exceptions": faults})
botocore.exceptions = faults
faults.BotoCoreError = type("BotoCoreError", (Exception,), {})
faults.ClientError = type("ClientError", (Exception,), {})
for name in ("NoRegionError", "NoCredentialsError", "SSOError", "TokenRetrievalError", "ParamValidationError",
             "EndpointConnectionError"):
    setattr(faults, name, type(name, (faults.BotoCoreError,), {}))
faults.SSOTokenLoadError = type("SSOTokenLoadError", (faults.SSOError,), {})
answers = {}
for name in sys.argv[1].split():
    def client(service, region_name):
        raise getattr(faults, name)("said by\nboto3" if name == "ParamValidationError" else "said by boto3")
    boto3.client = client
    error, code = io.StringIO(), 0
    with contextlib.redirect_stderr(error):
        try:
            launch.main(sys.argv[2:])
        except SystemExit as e:
            code = e.code
    answers[name] = {"code": code, "error": error.getvalue()}
json.dump(answers, sys.stdout)`)
	type answer struct {
		Code  int
		Error string
	}
	cases := map[string]answer{
		"NoRegionError":           {2, "the region is not set: use --region"},
		"NoCredentialsError":      {2, "settings of AWS: said by boto3"},
		"SSOTokenLoadError":       {2, "settings of AWS: said by boto3"},
		"TokenRetrievalError":     {2, "settings of AWS: said by boto3"},
		"ParamValidationError":    {2, "arguments: said by; boto3"},
		"ClientError":             {1, "SageMaker did not start the job run-1: said by boto3"},
		"EndpointConnectionError": {1, "SageMaker did not start the job run-1: said by boto3"},
	}
	cmd.Args = append(cmd.Args, strings.Join(slices.Collect(maps.Keys(cases)), " "), "--name", "run-1", "--image",
		"IMAGE", "--role", "arn:aws:iam::123456789012:role/R", "--bucket", "bucket", "--group", "gpus:ml.g5.12xlarge:1")
	out, err := cmd.Output()
	var answers map[string]answer
	if err != nil || json.Unmarshal(out, &answers) != nil {
		t.Fatalf("got %q, %v, want answers", out, err)
	}
	for fault, want := range cases {
		if got := answers[fault]; got.Code != want.Code || !strings.HasPrefix(got.Error, "launch.py: "+want.Error) ||
			strings.Count(got.Error, "\n") != 1 {
			t.Errorf("%s: got %+v, want one line and %+v", fault, got, want)
		}
	}
}
