package prometheus

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

const deploy = "../../deploy"

func promtool(t *testing.T, arguments ...string) {
	t.Helper()
	tool := needtest.Program(t, "prometheus", "promtool")
	if out, err := exec.Command(tool, arguments...).CombinedOutput(); err != nil {
		t.Errorf("promtool %v: %v\n%s", arguments, err, out)
	}
}

func TestAlerts(t *testing.T) {
	promtool(t, "test", "rules", filepath.Join(deploy, "prometheus", "hetero_train.test.yml"))
	promtool(t, "check", "config", filepath.Join(deploy, "prometheus", "prometheus.yml"))
}

// metricName matches the names of a run's metrics.
var metricName = regexp.MustCompile(`\b(hetero_train_[a-z0-9_]+|DCGM_[A-Z0-9_]+)\b`)

// unknownNames returns the metric names in a text that do not exist.
func unknownNames(text string) (unknown []string) {
	known := names(full().Text())
	for _, name := range metricName.FindAllString(text, -1) {
		if !known[name] {
			unknown = append(unknown, name)
		}
	}
	return unknown
}

func TestAlertsNameMetricsThatExist(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(deploy, "prometheus", "hetero_train.rules.yml"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if _, expr, ok := strings.Cut(line, "expr:"); ok {
			if unknown := unknownNames(expr); len(unknown) > 0 {
				t.Errorf("%s: there are no metrics %q", strings.TrimSpace(expr), unknown)
			}
		}
	}
	if unknown := unknownNames("hetero_train_nothing + DCGM_NOTHING"); len(unknown) != 2 {
		t.Errorf("names that do not exist: got %q, want both", unknown)
	}
}

// The dashboard must have the fields that Grafana requires. Its queries must be valid PromQL, and use only metrics that
// exist.
func TestGrafanaDashboard(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(deploy, "grafana", "hetero_train.json"))
	if err != nil {
		t.Fatal(err)
	}
	type source struct{ Type, UID string }
	var board struct {
		Title, UID    string
		SchemaVersion int
		Templating    struct {
			List []struct {
				Name, Type string
				Query      json.RawMessage
			}
		}
		Panels []struct {
			ID          int
			Title, Type string
			Datasource  source
			GridPos     struct{ X, Y, W, H int }
			Targets     []struct {
				RefID, Expr, LegendFormat string
				Datasource                source
			}
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	if board.Title == "" || board.UID == "" || board.SchemaVersion < 36 || len(board.Panels) < 10 {
		t.Errorf("got title %q, uid %q, schema %d and %d panels", board.Title, board.UID, board.SchemaVersion,
			len(board.Panels))
	}
	variables := map[string]bool{}
	for _, v := range board.Templating.List {
		variables["$"+v.Name] = true
		if unknown := unknownNames(string(v.Query)); len(unknown) > 0 {
			t.Errorf("variable %s: there are no metrics %q", v.Name, unknown)
		}
	}
	taken, ids, expressions := map[[2]int]string{}, map[int]bool{}, []string{}
	for _, p := range board.Panels {
		if p.Title == "" || p.Type != "stat" && p.Type != "timeseries" || ids[p.ID] || len(p.Targets) == 0 ||
			p.Datasource != (source{"prometheus", "${datasource}"}) {
			t.Errorf("panel %d %q: got type %q, source %v, %d queries", p.ID, p.Title, p.Type, p.Datasource,
				len(p.Targets))
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if at := [2]int{x, y}; taken[at] != "" || x > 23 {
					t.Fatalf("panel %q: its place belongs to %q or is outside the page", p.Title, taken[at])
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		refs := map[string]bool{}
		for _, q := range p.Targets {
			if q.RefID == "" || refs[q.RefID] || q.Datasource != p.Datasource {
				t.Errorf("panel %q: got query %+v, want its own reference and the source of the panel", p.Title, q)
			}
			refs[q.RefID] = true
			if unknown := unknownNames(q.Expr); len(unknown) > 0 || len(metricName.FindAllString(q.Expr, -1)) == 0 {
				t.Errorf("panel %q: %s: there are no metrics %q", p.Title, q.Expr, unknown)
			}
			for _, v := range regexp.MustCompile(`\$\w+`).FindAllString(q.Expr, -1) {
				if !variables[v] {
					t.Errorf("panel %q: there is no variable %s", p.Title, v)
				}
			}
			expressions = append(expressions, q.Expr)
		}
	}
	all := strings.Join(expressions, "\n")
	for _, g := range linkGroups {
		if slices.Contains(g.kinds, telemetry.LinkPCIe) {
			g.sent, g.received = "", "" // NVML has no byte counters for PCIe, so the panel shows sampled rates
		}
		for _, name := range []string{g.sent, g.received, g.limit} {
			if !strings.Contains(all, name) {
				t.Errorf("no panel shows the metric %s of %s", name, g.what)
			}
		}
	}
	var rules strings.Builder
	rules.WriteString("groups:\n- name: queries\n  rules:\n")
	for i, e := range expressions {
		fmt.Fprintf(&rules, "  - {record: query:%d, expr: %q}\n", i, e)
	}
	file := filepath.Join(t.TempDir(), "queries.yml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", file)
}
