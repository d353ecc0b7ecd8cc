package runs

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// The planned memory must be that of the newest process. If it belongs to another process, or the file is damaged, it
// must not be shown.
func TestPlannedMemoryIsThatOfTheNewestProcess(t *testing.T) {
	account := memory.Account{Samples: 16, Unified: true, Device: []memory.Part{{Name: "weights", Bytes: 3 << 20}},
		Host:     []memory.Part{{Name: "program", Bytes: 20 << 20}},
		Optional: []memory.Part{{Name: "checkpoint copy", Bytes: 3 << 20}},
		Limit:    memory.Limit{Bytes: 1 << 30, Source: "memory.max of /job"}}
	file := runtime.Memory{Start: "B", Step: 40, Ranks: []runtime.RankMemory{{Account: account, MeasuredOf: 1 << 30},
		{Account: account}}}
	good, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := func(change func(*memory.Account)) []byte {
		other := file
		other.Ranks = slices.Clone(file.Ranks)
		change(&other.Ranks[1].Account)
		text, err := json.Marshal(other)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	negative := changed(func(a *memory.Account) { a.Host = []memory.Part{{Name: "program", Bytes: -1}} })
	limit := changed(func(a *memory.Account) { a.Limit.Bytes = -1 })
	overflow := changed(func(a *memory.Account) {
		a.Host = []memory.Part{{Name: "a", Bytes: 1 << 62}, {Name: "b", Bytes: 1 << 62}}
	})
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, test := range []struct {
		name  string
		text  []byte
		start string
		step  int64
		ranks int
		want  bool
	}{
		{"no file", nil, "B", 40, 2, false},
		{"of the newest process", good, "B", 40, 2, true},
		{"of a copy without the start", good, "", 40, 2, true},
		{"of an earlier process", good, "B", 60, 2, false},
		{"of an earlier process that began at the same step", good, "C", 40, 2, false},
		{"of more ranks", good, "B", 40, 1, false},
		{"negative", negative, "B", 40, 2, false},
		{"negative limit", limit, "B", 40, 2, false},
		{"a sum of 2^63 bytes", overflow, "B", 40, 2, false},
		{"damaged", good[:20], "B", 40, 2, false},
	} {
		if test.text != nil {
			if err := os.WriteFile(filepath.Join(dir, runtime.MemoryFile), test.text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := readMemory(root, test.start, test.step, test.ranks); (got != nil) != test.want {
			t.Errorf("%s: got %v, want any: %v", test.name, got, test.want)
		}
	}
	record := &runtime.Record{Iteration: 41, Telemetry: telemetry.Unknown()}
	record.Telemetry[telemetry.ImageDecoders] = 5 << 20
	for step, want := range map[int64]int64{40: 5 << 20, 41: 0} {
		if v := memoryOf(runtime.RankMemory{Account: account}, record, step); v.ImageDecoders != want {
			t.Errorf("a record of step 41, process after step %d: got %d bytes of image decoders, want %d", step,
				v.ImageDecoders, want)
		}
	}
	record.Telemetry = telemetry.Unknown()
	if v := memoryOf(runtime.RankMemory{Account: account, MeasuredOf: 1 << 30}, record, 40); v.Used != 0 {
		t.Errorf("without a measurement: got %d bytes in use, want 0", v.Used)
	}
	record.Telemetry[telemetry.Memory] = 25
	v := memoryOf(runtime.RankMemory{Account: account, MeasuredOf: 1 << 30}, record, 40)
	if v.Used != 1<<28 || v.UsedAtLeast || v.HostBytes != 23<<20 || v.DeviceBytes != 3<<20 || v.Limit != 1<<30 {
		t.Errorf("got %+v, want 256 MiB in use, 23 MiB planned, 3 MiB of the device, and a limit of 1 GiB", v)
	}
	if v := memoryOf(runtime.RankMemory{Account: account}, record, 40); v.Used != 0 {
		t.Errorf("percent of a GPU: got %d bytes of the process, want 0", v.Used)
	}
	if v := memoryOf(runtime.RankMemory{Account: account, MeasuredOf: 1 << 30}, record, 41); v.Used != 0 {
		t.Errorf("a record of the process before: got %d bytes of the new one, want 0", v.Used)
	}
	record.Telemetry[telemetry.Memory] = 100
	if v := memoryOf(runtime.RankMemory{Account: account, MeasuredOf: 1 << 30}, record, 40); v.Used != 1<<30 ||
		!v.UsedAtLeast {
		t.Errorf("100 %%: got %d bytes, at least: %v, want 1 GiB or more", v.Used, v.UsedAtLeast)
	}
}
