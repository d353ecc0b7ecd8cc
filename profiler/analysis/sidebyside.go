package analysis

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/hetero-train/hetero-train/profiler/runs"
)

// mostColumns is the largest number of runs in a table with one column per run. A table of more runs has one row per
// run.
const mostColumns = 8

// SideBySide compares runs.
type SideBySide struct {
	SchemaVersion int          `json:"schema_version"` // 2
	Trials        []*Trial     `json:"runs"`           // the first run is the reference of the ratios
	Settings      []Difference `json:"settings_that_differ"`
	Target        *Target      `json:"target_loss,omitempty"` // the loss to which Trial.TimeToLoss refers
	Notes         []string     `json:"notes,omitempty"`       // limits of the comparison
}

// Difference is a setting with unequal values.
type Difference struct {
	Key    string    `json:"key"`
	Values []*string `json:"values"` // value in each run; null: the run does not have the setting
}

// ErrNotComparable is the cause of an error about runs that cannot be compared.
var ErrNotComparable = errors.New("the runs cannot be compared")

// ownSettings are settings that may differ between runs without an effect on the results. Some of them contain secrets.
// A name that ends in "." stands for a whole table.
var ownSettings = []string{"experiment.name", "experiment.output_dir", "experiment.log_dir", "parallel.master_addr",
	"parallel.master_port",
	"parallel.token_file", "train.resume", "profile.gpu_profiles", "notify.", "tracking.", "dashboard.", "metrics."}

// CompareTrials compares runs. It makes their names unique. The error for runs that cannot be compared is an
// ErrNotComparable.
func CompareTrials(trials []*Trial) (*SideBySide, error) {
	if len(trials) < 2 {
		return nil, fmt.Errorf("%w: got %d, want at least 2", ErrNotComparable, len(trials))
	}
	if err := sameMeasure(trials); err != nil {
		return nil, err
	}
	nameTrials(trials)
	s := &SideBySide{SchemaVersion: 2, Trials: trials, Settings: settingsThatDiffer(trials)}
	s.setTarget()
	for _, c := range []struct {
		what, effect string
		of           func(*Trial) string
	}{
		{"data sets", "losses and metrics of different data do not show which run is better", func(t *Trial) string {
			return t.Dataset
		}},
		{"models", "throughput and losses of different models do not show the effect of other settings",
			func(t *Trial) string { return t.Model }},
	} {
		if differ, list := valuesOf(trials, c.of); differ {
			s.Notes = append(s.Notes, fmt.Sprintf("The %s differ (%s): %s.", c.what, list, c.effect))
		}
	}
	// A small difference is normal: the newest point in MLflow can be a few steps older than the newest record.
	fewest, most := slices.MinFunc(trials, bySteps).Steps, slices.MaxFunc(trials, bySteps).Steps
	if _, list := valuesOf(trials, func(t *Trial) string {
		return strconv.FormatInt(t.Steps, 10)
	}); most-fewest > most/100 {
		s.Notes = append(s.Notes, fmt.Sprintf("The numbers of steps differ (%s): training time, cost and last losses belong to unequal amounts of training.",
			list))
	}
	for _, t := range trials {
		switch {
		case t.Status == "running" && !t.newest.IsZero():
			s.Notes = append(s.Notes, fmt.Sprintf("Run %s is running according to MLflow, where a killed run keeps this status: its newest point is of step %d, %s.",
				plain(t.Name), t.Steps, t.newest.UTC().Format("2006-01-02 15:04:05 UTC")))
		case t.Status != "finished":
			s.Notes = append(s.Notes, fmt.Sprintf("Run %s is not finished (%s): its figures are those up to step %d.",
				plain(t.Name), t.Status, t.Steps))
		}
		if t.FirstStep > 1 {
			s.Notes = append(s.Notes, fmt.Sprintf("The number of ranks of run %s changed: throughput, step time and means over ranks are those from step %d on (%d of them); training time, rank-hours and losses are those of the whole run.",
				plain(t.Name), t.FirstStep, t.Ranks))
		}
		if t.diverged {
			s.Notes = append(s.Notes, fmt.Sprintf("Run %s diverged, so it has no time to a loss, and its losses do not count for the loss that all runs reach.",
				plain(t.Name)))
		}
		if len(t.Settings) == 0 {
			s.Notes = append(s.Notes, fmt.Sprintf("The settings of run %s are unknown.", plain(t.Name)))
		}
	}
	s.Notes = append(s.Notes, gainsUnknown(trials)...)
	return s, nil
}

func bySteps(a, b *Trial) int { return cmp.Compare(a.Steps, b.Steps) }

// sameMeasure returns an error in these cases: two of the runs are the same, units differ, or there is no curve that
// all runs have.
func sameMeasure(trials []*Trial) error {
	var seen places
	var first *Trial // the first run whose unit is known
	for _, t := range trials {
		if other := seen.add(t); other != nil {
			return fmt.Errorf("%w: %s and %s are the same run", ErrNotComparable, other.Path, t.Path)
		}
		switch {
		case t.Unit == "":
		case first == nil:
			first = t
		case t.Unit != first.Unit:
			return fmt.Errorf(
				"%w: %s trains on %s and %s on %s, so their losses and throughputs have different meanings",
				ErrNotComparable, first.Path, plainUnit(first.Unit), t.Path, plainUnit(t.Unit))
		}
	}
	for _, c := range trials[0].Curves {
		if !slices.ContainsFunc(trials[1:], func(t *Trial) bool { return t.curve(c.Key) == nil }) {
			return nil
		}
	}
	var have []string
	for _, t := range trials {
		var keys []string
		for _, c := range t.Curves {
			keys = append(keys, c.Key)
		}
		have = append(have, fmt.Sprintf("%s has %s", t.Path, strings.Join(keys, ", ")))
	}
	return fmt.Errorf("%w: no value is known of all runs: %s", ErrNotComparable, strings.Join(have, "; "))
}

// places finds runs that are given twice. A run on disk is identified by its folder, with links resolved. An MLflow
// server can have several addresses, and a folder can be in the file store of a server. For an address, only the run id
// is therefore compared with other paths. It is the last element of an address, and of a folder in a file store.
type places struct{ folders, addresses, ends map[string]*Trial }

// add adds a run. It returns an earlier run whose path leads to the same folder or to the same MLflow run, or nil.
func (p *places) add(t *Trial) (same *Trial) {
	if p.folders == nil {
		p.folders, p.addresses, p.ends = map[string]*Trial{}, map[string]*Trial{}, map[string]*Trial{}
	}
	end := path.Base(filepath.ToSlash(t.Path))
	if isAddress(t.Path) {
		same, p.addresses[end] = cmp.Or(p.addresses[end], p.ends[end]), t
		return same
	}
	folder := t.Path
	if whole, err := filepath.Abs(folder); err == nil {
		folder = whole
	}
	if real, err := filepath.EvalSymlinks(folder); err == nil {
		folder = real
	}
	same = cmp.Or(p.folders[folder], p.addresses[end])
	p.folders[folder], p.ends[end] = t, t
	return same
}

// isAddress reports whether the path of a run is its address on an MLflow server, which ends in the run id.
func isAddress(path string) bool { return strings.Contains(path, "://") }

func plainUnit(unit string) string {
	switch unit {
	case "img":
		return "images"
	case "tok":
		return "tokens"
	}
	return unit
}

// nameTrials makes the names of the runs unique. It adds the source of a run, then its folder, then a number.
func nameTrials(trials []*Trial) {
	clash := func(t *Trial) bool {
		return slices.ContainsFunc(trials, func(other *Trial) bool { return other != t && other.Name == t.Name })
	}
	for _, t := range trials {
		if t.Source == "mlflow" && clash(t) {
			t.Name += " (MLflow)"
		}
	}
	longer := map[*Trial]string{}
	for _, t := range trials {
		if whole, err := filepath.Abs(t.Path); err == nil && clash(t) {
			longer[t] = filepath.Base(filepath.Dir(whole)) + "/" + filepath.Base(whole)
		}
	}
	taken := map[string]bool{}
	for _, t := range trials {
		if name, ok := longer[t]; ok {
			t.Name = name
		}
		for name, n := t.Name, 2; taken[t.Name]; n++ {
			t.Name = fmt.Sprintf("%s (%d)", name, n)
		}
		taken[t.Name] = true
	}
}

// valuesOf reports whether known values of the runs differ, and lists them.
func valuesOf(trials []*Trial, of func(*Trial) string) (differ bool, list string) {
	var all []string
	for _, t := range trials {
		if v := of(t); v != "" && !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	texts := make([]string, len(all))
	for i, v := range all {
		texts[i] = plain(v)
	}
	return len(all) > 1, strings.Join(texts, ", ")
}

// settingsThatDiffer returns the settings with unequal values. Runs without settings are not considered.
func settingsThatDiffer(trials []*Trial) []Difference {
	keys := map[string]bool{}
	for _, t := range trials {
		for key := range t.Settings {
			keys[key] = true
		}
	}
	all := []Difference{}
	for _, key := range sortedKeys(keys) {
		if slices.ContainsFunc(ownSettings, func(name string) bool {
			return key == name || strings.HasSuffix(name, ".") && strings.HasPrefix(key, name)
		}) {
			continue
		}
		d, seen := Difference{Key: key}, map[string]bool{}
		for _, t := range trials {
			v, found := t.Settings[key]
			switch {
			case len(t.Settings) == 0:
				d.Values = append(d.Values, nil)
				continue
			case !found:
				d.Values = append(d.Values, nil)
			default:
				d.Values = append(d.Values, &v)
				v = runs.Canonical(v)
			}
			seen[fmt.Sprint(found, v)] = true
		}
		if len(seen) > 1 {
			all = append(all, d)
		}
	}
	return all
}

// CurveKeys returns the keys of the curves that at least one run has, in the order of the runs.
func (s *SideBySide) CurveKeys() (keys []string) {
	for _, t := range s.Trials {
		for _, c := range t.Curves {
			if !slices.Contains(keys, c.Key) {
				keys = append(keys, c.Key)
			}
		}
	}
	return keys
}

// Curve returns a run's curve with the given key, or nil.
func (s *SideBySide) Curve(run int, key string) *Curve { return s.Trials[run].curve(key) }

// rows returns the table of figures, one column per run. Rows without a known value are left out.
func (s *SideBySide) rows() [][]string {
	var rows [][]string
	add := func(name string, of func(*Trial) string) {
		row, found := []string{name}, false
		for _, t := range s.Trials {
			v := plain(of(t))
			if v == "" {
				v = noValue
			}
			found = found || v != noValue
			row = append(row, v)
		}
		if found {
			rows = append(rows, row)
		}
	}
	number := func(of func(*Trial) Number, scale float64, format, unit string) func(*Trial) string {
		return func(t *Trial) string { return value(float64(of(t)), scale, format, unit) }
	}
	// ratio returns a function that adds the ratio to the first run to the text of a value.
	ratio := func(of func(*Trial) Number, text func(*Trial) string) func(*Trial) string {
		return func(t *Trial) string {
			r := float64(of(t) / of(s.Trials[0]))
			if t == s.Trials[0] || math.IsNaN(r) || math.IsInf(r, 0) {
				return text(t)
			}
			return fmt.Sprintf("%s (%.2fx)", text(t), r)
		}
	}
	count := func(n int64) string {
		if n == 0 {
			return noValue
		}
		return strconv.FormatInt(n, 10)
	}
	throughput := func(t *Trial) Number { return t.Throughput }
	training := func(t *Trial) Number { return t.TrainingTime }
	add("state", func(t *Trial) string { return t.Status })
	add("model", func(t *Trial) string { return t.Model })
	add("data", func(t *Trial) string { return t.Dataset })
	add("device of rank 0", func(t *Trial) string { return t.Device })
	add("precision", func(t *Trial) string { return t.Precision })
	add("ranks", func(t *Trial) string { return count(int64(t.Ranks)) })
	add("global batch", func(t *Trial) string { return count(t.BatchSize) })
	add("steps", func(t *Trial) string { return count(t.Steps) })
	if slices.ContainsFunc(s.Trials, func(t *Trial) bool { return t.FirstStep > 1 }) {
		add(presentRanks, func(t *Trial) string {
			if t.FirstStep < 1 {
				return noValue
			}
			return fmt.Sprintf("%d to %d", t.FirstStep, t.Steps)
		})
	}
	add("training loss", number(func(t *Trial) Number { return t.TrainLoss }, 1, asDigits, ""))
	add("evaluation loss", number(func(t *Trial) Number { return t.EvalLoss }, 1, asDigits, ""))
	var keys []string
	for _, t := range s.Trials {
		for _, m := range t.metrics {
			if slices.Contains(keys, m.key) {
				continue
			}
			keys = append(keys, m.key)
			add("evaluation "+m.title, func(t *Trial) string { return t.lastMetric(m.key) })
		}
	}
	if s.Target != nil {
		name := "time to training loss "
		if s.Target.Curve != lossCurve {
			name = "time to evaluation loss "
		}
		toLoss := func(t *Trial) Number { return t.TimeToLoss }
		add(name+Digits(s.Target.Loss), ratio(toLoss, number(toLoss, 1, asDigits, " s")))
	}
	add("throughput", ratio(throughput, func(t *Trial) string {
		return value(float64(t.Throughput), 1, asDigits, " "+t.unit()+"/s")
	}))
	add("step time", number(func(t *Trial) Number { return t.StepTime }, 1e3, asDigits, " ms"))
	add("communication per step", number(func(t *Trial) Number { return t.CommunicationTime }, 1e3, asDigits, " ms"))
	add("mean fraction of the oracle", number(func(t *Trial) Number { return t.ShareOfOracle }, 100, "%.1f", " %"))
	add("speed relative to equal shares", number(func(t *Trial) Number { return t.Gain }, 1, "%.2f", ""))
	add("load imbalance", number(func(t *Trial) Number { return t.Imbalance }, 100, "%.1f", " %"))
	add("utilization", number(func(t *Trial) Number { return t.Utilization }, 100, "%.0f", " %"))
	add("training time", ratio(training, number(training, 1, asDigits, " s")))
	add("cost: rank-hours", number(func(t *Trial) Number { return t.RankHours }, 1, asDigits, " h"))
	add("cost: energy", number(func(t *Trial) Number { return t.Energy }, 1, asDigits, " kWh"))
	return rows
}

// lastMetric formats the last value of an evaluated metric.
func (t *Trial) lastMetric(key string) string {
	for _, m := range t.metrics {
		if m.key == key {
			if m.percent {
				return Digits(100*m.value) + " %"
			}
			return Digits(m.value)
		}
	}
	return noValue
}

// settingRows returns the table of settings that differ.
func (s *SideBySide) settingRows() (rows [][]string) {
	for _, d := range s.Settings {
		row := []string{plain(d.Key)}
		for _, v := range d.Values {
			switch {
			case v == nil:
				row = append(row, noValue)
			case *v == "":
				row = append(row, `""`)
			default:
				row = append(row, plain(*v))
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func (s *SideBySide) header(first string) []string {
	row := []string{first}
	for run := range s.Trials {
		row = append(row, s.Name(run))
	}
	return row
}

// Name returns the name of a run for tables and legends.
func (s *SideBySide) Name(run int) string { return plain(s.Trials[run].Name) }

// Label returns the name of a run in a legend: its values of the settings that differ, up to three. If another run has
// the same values, the name of the run follows.
func (s *SideBySide) Label(run int) string {
	values, name := s.differing(run), s.Name(run)
	if values == "" {
		return name
	}
	for other := range s.Trials {
		if other != run && s.differing(other) == values {
			return values + " (" + name + ")"
		}
	}
	return values
}

// differing returns a run's non-empty values of the settings that differ.
func (s *SideBySide) differing(run int) string {
	const most = 3 // number of settings in a label
	var values []string
	for _, d := range s.Settings {
		v := d.Values[run]
		if v == nil || *v == "" || *v == "[]" { // not set
			continue
		}
		if len(values) <= most {
			values = append(values, plain(s.leaf(d.Key)+"="+*v))
		}
	}
	if len(values) > most {
		values[most] = "…"
	}
	return strings.Join(values, ", ")
}

// leaf returns a key without its table, unless another setting that differs has the same name.
func (s *SideBySide) leaf(key string) string {
	name := key[strings.LastIndexByte(key, '.')+1:]
	for _, d := range s.Settings {
		if d.Key != key && strings.HasSuffix(d.Key, "."+name) {
			return key
		}
	}
	return name
}

// perRun returns a table with one row for each run: its settings that differ, and its figures that differ. equal
// contains the figures that are equal in all runs.
func (s *SideBySide) perRun() (table [][]string, equal []string) {
	table = make([][]string, 1+len(s.Trials))
	for i, name := range s.header("run") {
		table[i] = append(table[i], name)
	}
	for _, row := range append(s.settingRows(), s.rows()...) {
		if same := slices.Compact(slices.Clone(row[1:])); len(same) == 1 {
			equal = append(equal, row[0]+" "+same[0])
			continue
		}
		for i, cell := range row {
			table[i] = append(table[i], cell)
		}
	}
	return table, equal
}

// printPerRun writes the table of perRun for a terminal.
func (s *SideBySide) printPerRun(w io.Writer) error {
	rows, equal := s.perRun()
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintf(table, "%s\n", strings.Join(row, "\t"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if len(equal) > 0 {
		if _, err := fmt.Fprintf(w, "\nEqual in all runs: %s.\n", strings.Join(equal, ", ")); err != nil {
			return err
		}
	}
	return s.printNotes(w)
}

func (s *SideBySide) printNotes(w io.Writer) error {
	for _, note := range s.Notes {
		if _, err := fmt.Fprintf(w, "NOTE %s\n", note); err != nil {
			return err
		}
	}
	return nil
}

// Print writes the comparison as tables for a terminal.
func (s *SideBySide) Print(w io.Writer) error {
	if len(s.Trials) > mostColumns {
		return s.printPerRun(w)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{s.header("run")}, s.rows()...) {
		fmt.Fprintf(table, "%s\n", strings.Join(row, "\t"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if rows := s.settingRows(); len(rows) > 0 {
		fmt.Fprintln(w)
		for _, row := range append([][]string{s.header("setting that differs")}, rows...) {
			fmt.Fprintf(table, "%s\n", strings.Join(row, "\t"))
		}
		if err := table.Flush(); err != nil {
			return err
		}
	} else if _, err := fmt.Fprintln(w, "\nNo setting differs."); err != nil {
		return err
	}
	return s.printNotes(w)
}

// Report returns the comparison in Markdown, with figures.
func (s *SideBySide) Report(drawn []Figure) string {
	var b strings.Builder
	if len(s.Trials) > mostColumns {
		rows, equal := s.perRun()
		b.WriteString("# Comparison of runs\n\n" + markdown(rows[0], rows[1:]))
		if len(equal) > 0 {
			b.WriteString("\nEqual in all runs: " + strings.Join(equal, ", ") + ".\n")
		}
	} else {
		b.WriteString("# Comparison of runs\n\n" + markdown(s.header("run"), s.rows()) +
			"\n## Settings that differ\n\n")
		if rows := s.settingRows(); len(rows) > 0 {
			b.WriteString(markdown(s.header("setting"), rows))
		} else {
			b.WriteString("No setting differs.\n")
		}
	}
	for _, note := range s.Notes {
		fmt.Fprintf(&b, "\n- %s", note)
	}
	b.WriteString(sideBySideDefinitions)
	b.WriteString("\n## Figures\n")
	for _, f := range drawn {
		fmt.Fprintf(&b, "\n![%s](%s)\n\n%s\n", f.Title, f.Path, f.Caption)
	}
	return b.String()
}

// presentRanks names the row with the steps that used the present number of ranks. Means over ranks cover only these
// steps.
const presentRanks = "steps with these ranks"

const sideBySideDefinitions = `
## Definitions

- Training time is the sum of the step times. A step lasts from the end of the previous step to its own end, without evaluations, saves and other pauses.
- Throughput: samples or tokens of all ranks / training time. Step time: training time / steps.
- A ratio such as 1.50x: value / value of the first run.
- Time to a loss: training time until the run reaches the lowest loss that all runs reach. The loss is the training loss, as mean of 20 successive points. If a run has none, it is the evaluation loss.
- Training loss: mean over the global batch of the last step. Evaluation loss and metrics: the last evaluation.
- Communication per step and utilization: arithmetic mean over ranks and steps. Communication is the wait for gradients after the backward pass.
- Load imbalance: arithmetic mean over steps of (max - min) / max of the ranks' own compute times.
- Mean fraction of the oracle: step time with the best shares / step time with the actual shares, both without noise: 1 - imbalance / (step time - noise) of the mean step. For runs of MLflow it is the mean of the points, and approximate, because only some steps have points.
- Rank-hours: sum over steps of time x number of ranks. Energy: mean power of the devices of all ranks x training time; unknown if the number of ranks changed.
- If the number of ranks of a run changed, the row "steps with these ranks" states the steps of these figures: throughput, step time, communication, mean fraction of the oracle, load imbalance, utilization. The other figures are of the whole run.
`

// JSON returns the comparison on one line.
func (s *SideBySide) JSON() ([]byte, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode the comparison: %w", err)
	}
	return append(text, '\n'), nil
}
