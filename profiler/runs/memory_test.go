package runs

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// The planned memory belongs to the newest process. That of another process, and a damaged file, are not shown.
func TestPlannedMemoryIsThatOfTheNewestProcess(t *testing.T) {
	account := memory.Account{Samples: 16, Unified: true, Device: []memory.Part{{Name: "weights", Bytes: 3 << 20}},
		Host:     []memory.Part{{Name: "program", Bytes: 20 << 20}},
		Optional: []memory.Part{{Name: "checkpoint copy", Bytes: 3 << 20}},
		Limit:    memory.Limit{Bytes: 1 << 30, Source: "memory.max of /job"}}
	file := runtime.Memory{Step: 40, Ranks: []runtime.RankMemory{{Account: account, MeasuredOf: 1 << 30},
		{Account: account}}}
	good, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	file.Ranks[1].Host = []memory.Part{{Name: "program", Bytes: -1}}
	negative, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, test := range []struct {
		name  string
		text  []byte
		step  int64
		ranks int
		want  bool
	}{
		{"no file", nil, 40, 2, false},
		{"of the newest process", good, 40, 2, true},
		{"of an earlier process", good, 60, 2, false},
		{"of more ranks", good, 40, 1, false},
		{"negative", negative, 40, 2, false},
		{"damaged", good[:20], 40, 2, false},
	} {
		if test.text != nil {
			if err := os.WriteFile(filepath.Join(dir, runtime.MemoryFile), test.text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := readMemory(root, test.step, test.ranks); (got != nil) != test.want {
			t.Errorf("%s: got %v, want any: %v", test.name, got, test.want)
		}
	}
	record := &runtime.Record{Telemetry: telemetry.Unknown()}
	if v := memoryOf(runtime.RankMemory{Account: account, MeasuredOf: 1 << 30}, record); v.Used != 0 {
		t.Errorf("without a measurement: got %d bytes in use, want 0", v.Used)
	}
	record.Telemetry[telemetry.Memory] = 25
	v := memoryOf(runtime.RankMemory{Account: account, MeasuredOf: 1 << 30}, record)
	if v.Used != 1<<28 || v.HostBytes != 23<<20 || v.DeviceBytes != 3<<20 || v.Limit != 1<<30 {
		t.Errorf("got %+v, want 256 MiB in use, 23 MiB planned, 3 MiB of the device, and a limit of 1 GiB", v)
	}
	if v := memoryOf(runtime.RankMemory{Account: account}, record); v.Used != 0 {
		t.Errorf("percent of a GPU: got %d bytes of the process, want 0", v.Used)
	}
}
