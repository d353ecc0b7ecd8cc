package logs

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
)

func TestTextIsForPeopleAndNamesTheComponent(t *testing.T) {
	var out bytes.Buffer
	log, err := New(&out, NewScreen(io.Discard), Options{Level: "info", Format: FormatText})
	if err != nil {
		t.Fatal(err)
	}
	log = log.With(ComponentKey, ComponentTrainer)
	log.Info("saved", "took", 63123450*time.Microsecond)
	log.With(ComponentKey, ComponentBalancer).Info("Registered 2 nodes")
	log.Info("starts 2 ranks", ComponentKey, ComponentCluster)
	lines := strings.Split(out.String(), "\n")
	for i, want := range []string{`INF trainer: saved took=1m03s`, `INF load_balancer: Registered 2 nodes`,
		`INF cluster: starts 2 ranks`} {
		if !regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ` + want + `$`).MatchString(lines[i]) {
			t.Errorf("got %q, want a time and %q", lines[i], want)
		}
	}
}

func TestJSONNamesTheComponentOnce(t *testing.T) {
	var out bytes.Buffer
	log, err := New(&out, NewScreen(io.Discard),
		Options{Level: "info", Format: FormatJSON, Each: []slog.Attr{slog.Int("from_rank", 3)}})
	if err != nil {
		t.Fatal(err)
	}
	log.With(ComponentKey, ComponentTrainer).With(ComponentKey, ComponentBalancer).Info("Registered 2 nodes", "device",
		"cpu")
	want := `"msg":"Registered 2 nodes","from_rank":3,"component":"load_balancer","device":"cpu"}` + "\n"
	if got := out.String(); !strings.HasSuffix(got, want) {
		t.Errorf("got %swant …%s", got, want)
	}
}

func TestLinesBecomeRecords(t *testing.T) {
	var out bytes.Buffer
	w := &LineRecords{Pass: &out, Log: slog.New(slog.NewJSONHandler(&out, nil))}
	fmt.Fprint(w, "goroutine 1 [run")
	fmt.Fprint(w, "ning]:\n\n{\"time\":\"now\",\"level\":\"INFO\",\"msg\":\"a record\"}\n{torn\nrest")
	w.Flush()
	if got, want := clitest.Messages(clitest.Objects(t, out.String())),
		[]string{"goroutine 1 [running]:", "a record", "{torn", "rest"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
