package ingest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
)

// Read reads sources, in any order, and reports all their faults in one [*Error]. The sources together may describe a
// cluster, jobs or both. [Data.Check] checks whether the result can be simulated.
func Read(sources ...Source) (*Data, error) {
	var f faults
	a := assembler{f: &f, d: new(Data)}
	for i := range sources {
		before := len(f.list) + f.more
		rows, err := rowsOf(&sources[i], &f)
		if err != nil {
			return nil, err
		}
		if len(f.list)+f.more > before { // rows of any table may be missing
			for t := range a.broken {
				a.broken[t] = a.broken[t] || sources[i].Format != CSV || tables[t].name == sources[i].Table
			}
		}
		for k := range rows {
			if r, ok := rows[k].check(&f); ok {
				a.records[rows[k].table] = append(a.records[rows[k].table], r)
			} else {
				a.broken[rows[k].table] = true
			}
		}
	}
	a.assemble()
	if len(f.list) == 0 && a.empty() {
		name := "sources"
		if len(sources) > 0 {
			name = sources[0].Name
		}
		f.add(name, 0, "rows", "none", "at least one row of a table: "+tableNames())
	}
	if len(f.list) > 0 { // in the order of sources and lines, for reading
		order := map[string]int{}
		for i := range sources {
			order[sources[i].Name] = i
		}
		slices.SortStableFunc(f.list, func(a, b Fault) int {
			return cmp.Or(cmp.Compare(order[a.Source], order[b.Source]), cmp.Compare(a.Line, b.Line))
		})
		return nil, f.err()
	}
	return a.d, nil
}

// assembler creates the result from checked rows.
type assembler struct {
	f       *faults
	d       *Data
	records [8][]record // by table
	broken  [8]bool     // by table: rows are missing, so a reference to an unknown name may not be a fault

	types, machines, gpus, kinds, jobs names
	batches                            []float64 // by kind
}

// names maps the names of a table to its rows.
type names map[string]named

type named struct {
	index int
	place Place
}

func (a *assembler) empty() bool {
	for _, r := range a.records {
		if len(r) > 0 {
			return false
		}
	}
	return true
}

func (a *assembler) of(t Table) []record { return a.records[tableIndex(string(t))] }

// define adds a name. It returns false if the name exists already.
func (a *assembler) define(n *names, r *record, what, name string, index int) bool {
	if *n == nil {
		*n = names{}
	}
	if first, ok := (*n)[name]; ok {
		a.f.add(r.source, r.line, what+" "+quote(name), "a second definition",
			"unique names: the first definition is at "+first.place.String())
		return false
	}
	(*n)[name] = named{index, Place{r.source, r.line}}
	return true
}

// Limits of the search for the nearest name, which compares a name with all others.
const (
	mostProposals = 20   // faults
	mostProposed  = 1000 // names
)

// find looks up a name of a table.
func (a *assembler) find(t Table, r *record, what, name string) (int, bool) {
	n := a.kinds
	switch t {
	case GPUTypes:
		n = a.types
	case Machines:
		n = a.machines
	}
	if found, ok := n[name]; ok {
		return found.index, true
	}
	if a.broken[tableIndex(string(t))] {
		return 0, false // the row of the name may be one of the faulty rows
	}
	if len(a.f.list) >= mostProposals || len(n) > mostProposed {
		a.f.add(r.source, r.line, what, quote(name), "a name that a row defines")
		return 0, false
	}
	best, distance := "", math.MaxInt
	for other := range n { // the smallest distance, then the alphabetically first name: independent of the map's order
		if d := editDistance(name, other); d < distance || d == distance && other < best {
			best, distance = other, d
		}
	}
	want := "a name that a row defines, but no row defines one"
	if best != "" {
		want = "a name that a row defines; the nearest is " + quote(best)
	}
	a.f.add(r.source, r.line, what, quote(name), want)
	return 0, false
}

func (a *assembler) assemble() {
	c := &a.d.Cluster
	for _, r := range a.of(GPUTypes) {
		if a.define(&a.types, &r, "GPU type", r.texts[0], len(c.Types)) {
			c.Types = append(c.Types, scheduler.GPUType{Name: r.texts[0], Memory: r.number[1], Bandwidth: r.number[2],
				Compute: r.number[3]})
		}
	}
	for _, r := range a.of(Machines) {
		a.machine(&r)
	}
	for _, r := range a.of(GPUs) {
		typ, known := a.find(GPUTypes, &r, "gpu "+quote(r.texts[0])+": type", r.texts[1])
		machine, found := a.find(Machines, &r, "gpu "+quote(r.texts[0])+": machine", r.texts[2])
		if known && found {
			a.gpu(&r, scheduler.GPU{Name: r.texts[0], Type: typ, Machine: machine, Utilization: r.number[3],
				Temperature: r.number[4]})
		}
	}
	for _, r := range a.of(Kinds) {
		a.kind(&r)
	}
	last := Place{}
	for _, r := range a.of(Jobs) {
		a.job(&r, &last)
	}
	a.speeds()
}

func (a *assembler) machine(r *record) {
	c := &a.d.Cluster
	m := scheduler.Machine{Name: r.texts[0], CPUs: r.number[1], Memory: r.number[2], Network: r.number[3]}
	index := len(c.Machines)
	if !a.define(&a.machines, r, "machine", m.Name, index) {
		return
	}
	c.Machines = append(c.Machines, m)
	typeName, count := r.texts[4], r.number[5]
	if (typeName != "") != !math.IsNaN(count) {
		a.f.add(r.source, r.line, "machine "+quote(m.Name), "only one of gpu_type and gpus", "both or none")
		return
	}
	if typeName == "" {
		return
	}
	if typ, ok := a.find(GPUTypes, r, "machine "+quote(m.Name)+": gpu_type", typeName); ok {
		for i := range int(count) {
			a.gpu(r, scheduler.GPU{Name: fmt.Sprintf("%s/%d", m.Name, i), Type: typ, Machine: index,
				Utilization: math.NaN(), Temperature: math.NaN()})
		}
	}
}

func (a *assembler) gpu(r *record, g scheduler.GPU) {
	c := &a.d.Cluster
	if len(c.GPUs) == maxCount {
		a.f.add(r.source, r.line, "GPUs", "more", fmt.Sprintf("at most %d", maxCount))
	}
	if len(c.GPUs) < maxCount && a.define(&a.gpus, r, "gpu", g.Name, len(c.GPUs)) {
		c.Machines[g.Machine].GPUs = append(c.Machines[g.Machine].GPUs, len(c.GPUs))
		c.GPUs = append(c.GPUs, g)
	}
}

// classes are the names of classes, by scheduler.Class.
var classes = func() (names [scheduler.Classes]string) {
	for c := range names {
		names[c] = scheduler.Class(c).String()
	}
	return names
}()

func (a *assembler) kind(r *record) {
	class := slices.Index(classes[:], strings.ToLower(r.texts[1]))
	if class < 0 {
		a.f.add(r.source, r.line, "kind "+quote(r.texts[0])+": class", quote(r.texts[1]),
			"one of "+strings.Join(classes[:], ", "))
		a.broken[tableIndex(string(Kinds))] = true
		return
	}
	w := &a.d.Workload
	if a.define(&a.kinds, r, "kind", r.texts[0], len(w.Kinds)) {
		w.Kinds = append(w.Kinds, scheduler.Kind{Name: r.texts[0], Class: scheduler.Class(class),
			GPUMemory: r.number[2], Save: r.number[3], Load: r.number[4]})
		a.batches = append(a.batches, r.number[5])
	}
}

// stated returns a number of a job that has a meaning without it: 0 if the number is missing.
func stated(x float64) float64 {
	if math.IsNaN(x) {
		return 0
	}
	return x
}

func (a *assembler) job(r *record, last *Place) {
	w := &a.d.Workload
	j := scheduler.Job{Name: r.texts[0], Arrival: r.number[2], Work: r.number[3], GPUs: int(r.number[4]),
		CPUs: r.number[5], Memory: r.number[6], Network: r.number[7], Priority: r.number[8],
		Estimate: stated(r.number[9]), Error: stated(r.number[10])}
	kind, ok := a.find(Kinds, r, "job "+quote(j.Name)+": kind", r.texts[1])
	if !ok {
		return
	}
	j.Kind = kind
	if j.Estimate > 0 && j.Error > 0 {
		a.f.add(r.source, r.line, "job "+quote(j.Name), "both estimate and estimate_error", "at most one of the two")
		return
	}
	unique := a.define(&a.jobs, r, "job", j.Name, len(w.Jobs))
	if n := len(w.Jobs); n > 0 && w.Jobs[n-1].Arrival > j.Arrival {
		a.f.add(r.source, r.line, "job "+quote(j.Name)+": arrival",
			fmt.Sprintf("%v s after %v s at %s", j.Arrival, w.Jobs[n-1].Arrival, *last), "jobs in the order of arrival")
		return
	}
	if !unique {
		return
	}
	w.Jobs = append(w.Jobs, j)
	*last = Place{r.source, r.line}
	a.d.JobPlace = append(a.d.JobPlace, *last)
}

// speeds creates the table of speeds.
func (a *assembler) speeds() {
	if len(a.of(Speeds))+len(a.of(Pairs))+len(a.of(Curves)) == 0 {
		return
	}
	types, kinds := len(a.d.Cluster.Types), len(a.d.Workload.Kinds)
	t := &workload.Table{Kinds: make([]workload.Rates, kinds), Have: make([]int, types)}
	for _, g := range a.d.Cluster.GPUs {
		if g.Type >= 0 && g.Type < types {
			t.Have[g.Type]++
		}
	}
	for i := range t.Kinds {
		t.Kinds[i].Types = make([][]workload.Rate, types)
	}
	most := 0
	seen := map[[4]int]Place{}
	unique := func(r *record, key [4]int) bool {
		if first, again := seen[key]; again {
			a.f.add(r.source, r.line, "speed of "+quote(r.texts[0]), "a second row",
				"each kind, GPU type and number of GPUs once: the first row is "+first.String())
			return false
		}
		seen[key] = Place{r.source, r.line}
		return true
	}
	for _, r := range a.of(Speeds) {
		kind, ok := a.find(Kinds, &r, "speed: kind", r.texts[0])
		typ, known := a.find(GPUTypes, &r, "speed: gpu_type", r.texts[1])
		n := int(r.number[2])
		if !ok || !known || !unique(&r, [4]int{kind, -1, typ, n}) {
			continue
		}
		rate := workload.Rate{GPUs: n, Packed: r.number[3], Spread: r.number[4]}
		if math.IsNaN(rate.Spread) {
			rate.Spread = 0
			if n == 1 {
				rate.Spread = rate.Packed
			}
		}
		most = max(most, n)
		t.Kinds[kind].Types[typ] = append(t.Kinds[kind].Types[typ], rate)
	}
	for _, k := range t.Kinds {
		for _, rates := range k.Types {
			slices.SortFunc(rates, func(a, b workload.Rate) int { return cmp.Compare(a.GPUs, b.GPUs) })
		}
	}
	for _, r := range a.of(Pairs) {
		kind, ok := a.find(Kinds, &r, "pair: kind", r.texts[0])
		other, is := a.find(Kinds, &r, "pair: other", r.texts[1])
		typ, known := a.find(GPUTypes, &r, "pair: gpu_type", r.texts[2])
		n := int(r.number[3])
		if ok && is && known && unique(&r, [4]int{min(kind, other), max(kind, other), typ, n}) {
			t.Pairs = append(t.Pairs, workload.Pair{Kind: kind, Other: other, Type: typ, GPUs: n, Speed: r.number[4],
				OtherSpeed: r.number[5]})
		}
	}
	a.curves(t, types)
	if kinds*types*(most+1) > maxFigures {
		a.f.add("speeds", 0, "size of the table", fmt.Sprintf("%d kinds, %d types, %d GPUs", kinds, types, most),
			fmt.Sprintf("a product of at most %d", maxFigures))
	}
	if len(a.f.list) > 0 {
		return
	}
	if err := t.Build(types); err != nil {
		a.f.add("speeds", 0, "invalid", err.Error(), "") // a fault that the checks above do not find
		return
	}
	a.d.Speeds = t
}

func (a *assembler) curves(t *workload.Table, types int) {
	for _, r := range a.of(Curves) {
		kind, ok := a.find(Kinds, &r, "curve: kind", r.texts[0])
		typ, known := a.find(GPUTypes, &r, "curve: gpu_type", r.texts[1])
		if !ok || !known {
			continue
		}
		k := &t.Kinds[kind]
		if math.IsNaN(a.batches[kind]) {
			a.f.add(r.source, r.line, "curve of kind "+quote(r.texts[0]), "no batch",
				"column batch in the row of the kind")
			continue
		}
		k.Batch = int(a.batches[kind])
		if k.Curves == nil {
			k.Curves = make([]divide.Curve, types)
		}
		c := k.Curves[typ]
		if n := len(c); n > 0 && r.number[2] <= c[n-1].Samples {
			a.f.add(r.source, r.line, "curve of kind "+quote(r.texts[0]),
				fmt.Sprintf("%v samples after %v", r.number[2], c[n-1].Samples), "ascending numbers of samples")
			continue
		}
		k.Curves[typ] = append(c, divide.Point{Samples: r.number[2], Seconds: r.number[3]})
	}
}
