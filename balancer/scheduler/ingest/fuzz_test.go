package ingest

import (
	"bytes"
	"errors"
	"math"
	"testing"
)

// checkRead checks data that Read has accepted: names are known, numbers are in their ranges, and jobs are in order.
func checkRead(t *testing.T, s Source) {
	d, err := Read(s)
	if err != nil {
		var faulty *Error
		if errors.As(err, &faulty) && (len(faulty.Faults) == 0 || len(faulty.Faults) > maxFaults) {
			t.Fatalf("got %d faults", len(faulty.Faults))
		}
		return
	}
	d.Fill(append(Unlimited(), Default{Machines, "cpus", 1}, Default{Machines, "memory", 1}))
	if err := errors.Join(d.Cluster.Check(), d.Workload.Check()); err != nil && len(d.Cluster.GPUs) > 0 {
		t.Fatalf("Read accepts what Check refuses: %v", err)
	}
	d.Check()
}

func FuzzTOML(f *testing.F) {
	f.Add([]byte(tomlText))
	f.Add([]byte("[[jobs]]\nname = \"\"\"x\ny\"\"\"\n[[jobs]]\nwork = 0x10\narrival = 1979-05-27\n"))
	f.Add([]byte("[[a.b]]\nx.y = {z = [1, 2]}\n[q]\n"))
	f.Add([]byte(tomlText[:300]))
	f.Fuzz(func(t *testing.T, text []byte) { checkRead(t, Source{"f", TOML, "", bytes.NewReader(text)}) })
}

func FuzzCSV(f *testing.F) {
	for i, text := range csvTexts {
		f.Add(i, []byte(text))
	}
	f.Add(4, []byte("name,kind\n\"a\"\"b\",\"x\ny\"\n"))
	f.Fuzz(func(t *testing.T, table int, text []byte) {
		names := Tables()
		checkRead(t, Source{"f", CSV, names[((table%len(names))+len(names))%len(names)], bytes.NewReader(text)})
	})
}

func FuzzJSONLines(f *testing.F) {
	f.Add([]byte(jsonText))
	f.Add([]byte("{\"table\": \"jobs\", \"table\": 1, \"work\": 1e999, \"gpus\": {\"a\": [null]}}\n"))
	f.Add([]byte(jsonText[:400]))
	f.Fuzz(func(t *testing.T, text []byte) { checkRead(t, Source{"f", JSONLines, "", bytes.NewReader(text)}) })
}

func FuzzQuantity(f *testing.F) {
	f.Add("16 GiB", 1)
	f.Add("-1e308 %", 6)
	f.Add("1.e5°C", 5)
	f.Fuzz(func(t *testing.T, text string, d int) {
		x, err := Quantity(text, Dimension(((d%dimensions)+dimensions)%dimensions))
		if err == nil && (math.IsNaN(x) || math.IsInf(x, 0)) {
			t.Fatalf("%q: got %v", text, x)
		}
	})
}
