package analysis

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// A summary must state the newest verdict on each rank, and earlier verdicts on slow ranks.
func TestASummaryNamesSlowRanks(t *testing.T) {
	const healthyLine = `{"step":20,"ranks":[{"health":"healthy"},{"health":"healthy"}]}` + "\n"
	for name, c := range map[string]struct{ events, decisions, want0, want1 string }{
		"slow at the end": {"", healthyLine + `{"step":30,"ranks":[{"health":"slow type"},{"health":"sick","cause":"CPU quota","evidence":"x"}]}
{"step":50,"ranks":[{"health":"healthy"},{"health":"sick","cause":"CPU quota"}]}
`,
			`{"verdict":"healthy","cause":null,"verdicts":[{"verdict":"slow type","steps":10,"first_step":21,"last_step":30}]}`,
			`{"verdict":"sick","cause":"CPU quota","verdicts":[{"verdict":"sick","cause":"CPU quota","steps":30,"first_step":21,"last_step":50}]}`},
		"recovered, and slow again for another cause": {"", `{"step":10,"ranks":[{"health":"healthy"},{"health":"sick","cause":"network"}]}
` + healthyLine + `{"step":30,"ranks":[{"health":"healthy"},{"health":"sick","cause":"CPU quota"}]}
{"step":35,"ranks":[{"health":"healthy"},{"health":"sick","cause":"network"}]}
{"step":50,"ranks":[{"health":"healthy"},{"health":"healthy"}]}
`,
			`{"verdict":"healthy","cause":null,"verdicts":[]}`,
			`{"verdict":"healthy","cause":null,"verdicts":[{"verdict":"sick","cause":"network","steps":15,"first_step":1,"last_step":35},{"verdict":"sick","cause":"CPU quota","steps":10,"first_step":21,"last_step":30}]}`},
		"no decision": {"", "", `{"verdict":null,"cause":null,"verdicts":null}`,
			`{"verdict":null,"cause":null,"verdicts":null}`},
		"a decision without verdicts": {"", `{"step":20,"ranks":[{"health":""},{}]}` + "\n",
			`{"verdict":null,"cause":null,"verdicts":[]}`, `{"verdict":null,"cause":null,"verdicts":[]}`},
		"verdicts on an earlier number of ranks": {`{"step":0,"start":{"ranks":3}}
{"step":25,"start":{"ranks":2}}
`, `{"step":20,"ranks":[{"health":"sick","cause":"network"},{"health":"healthy"},{"health":"healthy"}]}
{"step":40,"ranks":[{"health":"healthy"},{"health":"slow type"}]}
`,
			`{"verdict":"healthy","cause":null,"verdicts":[]}`,
			`{"verdict":"slow type","cause":null,"verdicts":[{"verdict":"slow type","steps":15,"first_step":26,"last_step":40}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeRecords(t, dir, steadyRecords(50, 24, 1), steadyRecords(50, 8, 1.4))
			writeFile(t, filepath.Join(dir, "logs", balanceFile), c.decisions)
			writeFile(t, filepath.Join(dir, "logs", runtime.EventsFile), c.events)
			s, err := Summarize(dir, "")
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range []string{c.want0, c.want1} {
				got, err := json.Marshal(s.PerRank[i].RankVerdicts)
				if err != nil || string(got) != want {
					t.Errorf("rank %d: got %s, %v\nwant %s", i, got, err, want)
				}
			}
		})
	}
}
