package ingest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
)

// Gavel contains the measurements of Gavel's simulation_throughputs.json.
//
// Gavel counts steps like package scheduler: a step is a batch of one GPU, and n GPUs compute n steps at the same time.
type Gavel struct {
	Types  []string         // names of the types of GPUs, in the order of the file
	Kinds  []scheduler.Kind // all of class Learning; GPU memory and times of checkpoints are unknown (NaN)
	Speeds *workload.Table
}

// spreadSuffix marks a type whose GPUs belong to several machines.
const spreadSuffix = "_unconsolidated"

// gavelKey is a key of the file: ('ResNet-18 (batch size 64)', 2).
var gavelKey = regexp.MustCompile(`^\('([^']{1,200})', ([0-9]{1,6})\)$`)

// gavelBatch finds the model and the batch size in the name of a kind.
var gavelBatch = regexp.MustCompile(`^(.+) \(batch size ([0-9]{1,9})\)$`)

// ReadGavel reads the measured speeds of Gavel (simulation_throughputs.json). The file is an object of the form {type:
// {"('kind', GPUs)": {"null": speed, "('other kind', GPUs)": [speed, speed of the other kind]}}}, with speeds in
// steps/s. A type with suffix "_unconsolidated" contains the speeds of GPUs in several machines. Without such a
// measurement, the speed on several machines is 0, except for one GPU, which has its speed within one machine.
//
// Kinds whose names differ only in "(batch size N)" are the same model. Their speeds on one GPU form the step-time
// curve of the model. With this curve, the table predicts speeds on GPUs of several types.
func ReadGavel(source string, r io.Reader) (*Gavel, error) {
	text, err := readAll(source, r)
	if err != nil {
		return nil, err
	}
	top, err := object(text)
	if err != nil {
		f := faults{}
		f.add(source, lineOf(text, err), "not a JSON object of GPU types", err.Error(),
			"Gavel's simulation_throughputs.json")
		return nil, f.err()
	}
	g := &gavelReader{source: source, text: text, kind: map[string]int{}, rates: map[rateKey]float64{}}
	for _, m := range top {
		if !strings.HasSuffix(m.key, spreadSuffix) {
			g.types = append(g.types, m.key)
		}
	}
	if len(top) == 0 {
		g.faults.add(source, 1, "types of GPUs", "none", "at least one")
	}
	seen := map[string]bool{}
	for _, m := range top {
		name, spread := strings.CutSuffix(m.key, spreadSuffix)
		typ := slices.Index(g.types, name)
		switch {
		case seen[m.key]:
			g.fault(m.at, "GPU type", quote(m.key)+" a second time", "each type once")
		case typ < 0:
			g.fault(m.at, "GPU type", quote(m.key)+" without "+quote(name), "speeds of both types")
		case name == "":
			g.fault(m.at, "GPU type", "no name", "a name")
		default:
			g.readType(m, typ, spread)
		}
		seen[m.key] = true
	}
	if n := len(g.kinds) * len(g.types) * (g.most + 1); n > maxFigures {
		g.faults.add(source, 0, "size of the table", fmt.Sprintf("%d kinds, %d types, %d GPUs", len(g.kinds),
			len(g.types), g.most), fmt.Sprintf("a product of at most %d", maxFigures))
	}
	if err := g.faults.err(); err != nil {
		return nil, err
	}
	out, err := g.table()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	return out, nil
}

type rateKey struct {
	kind, typ, gpus int
	spread          bool
}

type gavelReader struct {
	source string
	text   []byte
	faults faults
	types  []string
	kinds  []string
	kind   map[string]int
	most   int // GPUs
	rates  map[rateKey]float64
	pairs  []workload.Pair
}

func (g *gavelReader) fault(at int, what, got, want string) {
	g.faults.add(g.source, 1+bytes.Count(g.text[:at], []byte("\n")), what, got, want)
}

// member is a key of a JSON object with its value and the offset of the value in the file.
type member struct {
	key   string
	value json.RawMessage
	at    int
}

// object returns the members of a JSON object, in order. Duplicate keys are kept.
func object(text []byte) ([]member, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	if t != json.Delim('{') {
		return nil, fmt.Errorf("%v", t)
	}
	var list []member
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		var m member
		m.key, _ = key.(string) // keys of objects are strings
		if err := d.Decode(&m.value); err != nil {
			return nil, err
		}
		m.at = int(d.InputOffset()) - len(m.value)
		list = append(list, m)
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if t, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("%v after the JSON object", t)
	}
	return list, nil
}

// lineOf returns the line of a JSON syntax error. For an incomplete text, this is the last line.
func lineOf(text []byte, err error) int {
	at := len(text)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		at = min(int(syntax.Offset), len(text))
	}
	return 1 + bytes.Count(text[:at], []byte("\n"))
}

func (g *gavelReader) readType(m member, typ int, spread bool) {
	jobs, err := object(m.value)
	if err != nil {
		g.fault(m.at, "GPU type "+quote(m.key), err.Error(), "an object of kinds of jobs")
		return
	}
	pairs := map[[3]int]bool{}
	for _, j := range jobs {
		j.at += m.at
		kind, gpus, ok := g.parseKey(j)
		if !ok {
			continue
		}
		others, err := object(j.value)
		if err != nil {
			g.fault(j.at, "kind "+quote(j.key), err.Error(), "an object of speeds")
			continue
		}
		key := rateKey{kind, typ, gpus, spread}
		if _, again := g.rates[key]; again {
			g.fault(j.at, "kind "+quote(j.key), "the same key a second time", "each kind and number of GPUs once")
			continue
		}
		for _, o := range others {
			o.at += j.at
			if o.key == "null" {
				var speed float64
				if err := json.Unmarshal(o.value, &speed); err != nil || !(speed >= 0) {
					g.fault(o.at, "speed of "+quote(j.key), quote(string(o.value)),
						"a number of at least 0, in steps/s")
				}
				g.rates[key] = speed
				continue
			}
			other, n, ok := g.parseKey(o)
			if !ok {
				continue
			}
			var speeds []float64
			if err := json.Unmarshal(o.value, &speeds); err != nil || len(speeds) != 2 ||
				!(speeds[0] >= 0 && speeds[1] >= 0) {
				g.fault(o.at, "speeds of "+quote(j.key)+" with "+quote(o.key), quote(string(o.value)),
					"two numbers of at least 0, in steps/s")
				continue
			}
			if n != gpus {
				g.fault(o.at, "speeds of "+quote(j.key)+" with "+quote(o.key), "different numbers of GPUs",
					"jobs that share all their GPUs")
				continue
			}
			if pairs[[3]int{kind, other, gpus}] {
				g.fault(o.at, "speeds of "+quote(j.key)+" with "+quote(o.key), "the same pair a second time",
					"each pair once")
				continue
			}
			pairs[[3]int{kind, other, gpus}] = true
			if spread || kind != other && pairs[[3]int{other, kind, gpus}] {
				continue // the file has each pair twice, and the table has it once
			}
			g.pairs = append(g.pairs, workload.Pair{Kind: kind, Other: other, Type: typ, GPUs: gpus, Speed: speeds[0],
				OtherSpeed: speeds[1]})
		}
		if _, ok := g.rates[key]; !ok {
			g.fault(j.at, "kind "+quote(j.key), "no speed without another job", `a key "null"`)
		}
	}
}

func (g *gavelReader) parseKey(m member) (kind, gpus int, ok bool) {
	parts := gavelKey.FindStringSubmatch(m.key)
	if parts != nil {
		gpus, _ = strconv.Atoi(parts[2]) // digits
	}
	if gpus < 1 || gpus > maxGavelGPUs {
		g.fault(m.at, "kind of job", quote(m.key),
			fmt.Sprintf("a key such as ('ResNet-18 (batch size 64)', 2), with 1 to %d GPUs", maxGavelGPUs))
		return 0, 0, false
	}
	g.most = max(g.most, gpus)
	kind, ok = g.kind[parts[1]]
	if !ok {
		kind = len(g.kinds)
		g.kind[parts[1]] = kind
		g.kinds = append(g.kinds, parts[1])
	}
	return kind, gpus, true
}

// table makes the table of speeds. Kinds are in the order of the file.
func (g *gavelReader) table() (*Gavel, error) {
	out := &Gavel{Types: g.types, Kinds: []scheduler.Kind{},
		Speeds: &workload.Table{Kinds: make([]workload.Rates, len(g.kinds)), Pairs: g.pairs}}
	for _, name := range g.kinds {
		out.Kinds = append(out.Kinds, scheduler.Kind{Name: name, Class: scheduler.Learning, GPUMemory: math.NaN(),
			Save: math.NaN(), Load: math.NaN()})
	}
	for kind := range g.kinds {
		r := &out.Speeds.Kinds[kind]
		r.Types = make([][]workload.Rate, len(g.types))
	}
	for key, packed := range g.rates { // in any order: rates are sorted below
		if key.spread {
			continue
		}
		spread, ok := g.rates[rateKey{key.kind, key.typ, key.gpus, true}]
		if !ok && key.gpus == 1 {
			spread = packed
		}
		rates := &out.Speeds.Kinds[key.kind].Types[key.typ]
		*rates = append(*rates, workload.Rate{GPUs: key.gpus, Packed: packed, Spread: spread})
	}
	for kind := range out.Speeds.Kinds {
		for _, rates := range out.Speeds.Kinds[kind].Types {
			slices.SortFunc(rates, func(a, b workload.Rate) int { return cmp.Compare(a.GPUs, b.GPUs) })
		}
	}
	g.curves(out.Speeds)
	return out, out.Speeds.Build(len(g.types))
}

// curves adds to each kind the step-time curves of its model. A curve is the time of a step on one GPU at each measured
// batch size. A model with one batch size has no curve.
func (g *gavelReader) curves(t *workload.Table) {
	type member struct{ kind, batch int }
	models, order := map[string][]member{}, []string(nil)
	for kind, name := range g.kinds {
		parts := gavelBatch.FindStringSubmatch(name)
		if parts == nil {
			continue
		}
		batch, _ := strconv.Atoi(parts[2]) // digits
		if batch < 1 || slices.ContainsFunc(models[parts[1]], func(m member) bool { return m.batch == batch }) {
			continue
		}
		if models[parts[1]] == nil {
			order = append(order, parts[1])
		}
		models[parts[1]] = append(models[parts[1]], member{kind, batch})
	}
	for _, model := range order {
		members := models[model]
		if len(members) < 2 {
			continue
		}
		slices.SortFunc(members, func(a, b member) int { return cmp.Compare(a.batch, b.batch) })
		curves := make([]divide.Curve, len(g.types))
		for typ := range curves {
			for _, m := range members {
				if speed := g.rates[rateKey{m.kind, typ, 1, false}]; speed > 0 && 1/speed < math.MaxFloat64 {
					curves[typ] = append(curves[typ], divide.Point{Samples: float64(m.batch), Seconds: 1 / speed})
				}
			}
		}
		for _, m := range members {
			t.Kinds[m.kind].Batch, t.Kinds[m.kind].Curves = m.batch, curves
		}
	}
}

// Data combines the speeds with a cluster and the jobs of a trace. It matches the types of the cluster by name,
// ignoring case; a type that Gavel did not measure is an error. The kinds of the jobs must be those of [Gavel.Kinds].
func (g *Gavel) Data(c scheduler.Cluster, jobs []scheduler.Job) (*Data, error) {
	place := make([]int, len(g.Types)) // by Gavel's type: the type of the cluster, -1 for none
	for i := range place {
		place[i] = -1
	}
	from := make([]int, len(c.Types))
	for t, typ := range c.Types {
		from[t] = slices.IndexFunc(g.Types, func(name string) bool { return strings.EqualFold(name, typ.Name) })
		switch {
		case from[t] < 0:
			return nil, fmt.Errorf("GPU type %s of the cluster: got no speeds for this type, want one of %s",
				quote(typ.Name), strings.Join(g.Types, ", "))
		case place[from[t]] >= 0:
			return nil,
				fmt.Errorf(
					"GPU type %s of the cluster: got two types with this name, want names that differ in more than case",
					quote(typ.Name))
		}
		place[from[t]] = t
	}
	table := &workload.Table{Kinds: make([]workload.Rates, len(g.Kinds))}
	for kind, k := range g.Speeds.Kinds {
		out := &table.Kinds[kind]
		out.Batch, out.Types = k.Batch, make([][]workload.Rate, len(c.Types))
		if k.Curves != nil {
			out.Curves = make([]divide.Curve, len(c.Types))
		}
		for t, source := range from {
			out.Types[t] = slices.Clone(k.Types[source])
			if k.Curves != nil {
				out.Curves[t] = k.Curves[source]
			}
		}
	}
	for _, p := range g.Speeds.Pairs {
		if p.Type = place[p.Type]; p.Type >= 0 {
			table.Pairs = append(table.Pairs, p)
		}
	}
	if err := table.Build(len(c.Types)); err != nil {
		return nil, err
	}
	return &Data{Cluster: c, Workload: scheduler.Workload{Kinds: slices.Clone(g.Kinds), Jobs: slices.Clone(jobs)},
		Speeds: table}, nil
}
