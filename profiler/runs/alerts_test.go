package runs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// Each letter is the verdict of one decision on a rank.
func TestAlertsHaveHysteresis(t *testing.T) {
	healths := map[rune]string{'h': "healthy", 't': "slow type", 's': "sick"}
	for verdicts, want := range map[string]string{
		"hhhhhh":         "",
		"htththth":       "",
		"hhtttt":         "slow type at 30",
		"tttthtthttt":    "slow type at 10",
		"tttthhhttt":     "slow type at 10, slow type at 80",
		"hhs":            "straggler at 30",
		"hshshshs":       "straggler at 20",
		"hsshhhh":        "straggler at 20, recovered at 40",
		"hsshhhs":        "straggler at 20, recovered at 40, straggler at 70",
		"hsssttt":        "straggler at 20, slow type at 50",
		"httsttsttsttts": "straggler at 40, slow type at 110, straggler at 140",
	} {
		d := newDecided()
		for i, v := range verdicts {
			d.add([]byte(fmt.Sprintf(`{"step":%d,"ranks":[{"health":%q}]}`, 10*(i+1), healths[v])), 0)
		}
		var got []string
		for _, a := range d.alerts.list {
			got = append(got, fmt.Sprintf("%s at %d", a.Kind, a.Step))
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%s: got %q, want %q", verdicts, text, want)
		}
	}
}

// Each window is described by its verdict, and by the fraction of a step that its cause costs.
func TestOnlyLastingAndLargeBottlenecksAreAlerts(t *testing.T) {
	for windows, want := range map[string]int{
		"data 0.5":                      0,
		"data 0.5,data 0.5":             0,
		"data 0.5,data 0.5,data 0.5":    1,
		"data 0.5,data 0.5,data 0.1":    0,
		"data 0.5,noise 0.5,data 0.5":   0,
		"none 0.5,none 0.5,none 0.5":    0,
		"noise 0.3,noise 0.3,noise 0.3": 1,
	} {
		bounds := map[string]string{"data": "data-bound", "noise": "noise-bound", "none": "compute-bound"}
		r := &Run{decided: newDecided()}
		for i, w := range strings.Split(windows, ",") {
			cause, lost, _ := strings.Cut(w, " ")
			r.happened.add(
				[]byte(
					fmt.Sprintf(
						`{"step":%d,"bottleneck":{"bound":%q,"rank":1,"step_seconds":1,"parts_seconds":{%q:%s}}}`,
						runtime.BottleneckWindow*(i+1), bounds[cause], cause, lost)), 0)
		}
		if got := r.alerts(); len(got) != want {
			t.Errorf("%s: got %+v, want %d alerts", windows, got, want)
		}
	}
}

func TestAnOutcomeBelongsToItsChange(t *testing.T) {
	d := newDecided()
	for _, line := range []string{
		`{"step":10,"shares":[8,8],"next":[12,4],"changed":true,"reason":"a"}`,
		`{"step":20,"shares":[12,4],"next":[12,4],"outcome":{"step":10,"predicted":1.2,"achieved":0.8}}`,
		`{"step":30,"shares":[12,4],"next":[8,8],"changed":true,"reason":"b"}`,
		`{"step":40,"shares":[8,8],"next":[8,8],"outcome":{"step":7,"predicted":1,"achieved":1}}`,
	} {
		d.add([]byte(line), 0)
	}
	list := d.changes.list
	if len(list) != 2 || list[0].Outcome == nil || *list[0].Outcome.Achieved != 0.8 ||
		*list[0].Outcome.Predicted != 1.2 || list[1].Outcome != nil {
		t.Errorf("got %+v", list)
	}
}

// Successive windows with the same verdict must be combined. The times must be those of the newest window, and its
// steps must also be stated.
func TestAVerdictNamesItsNewestWindow(t *testing.T) {
	var h happened
	for _, line := range []string{`{"step":0,"start":{"program":"p"}}`,
		`{"step":52,"bottleneck":{"bound":"noise-bound","rank":-1,"step_seconds":1}}`,
		`{"step":102,"bottleneck":{"bound":"noise-bound","rank":-1,"step_seconds":2}}`} {
		h.add([]byte(line), 0)
	}
	v := h.verdicts.list
	if len(v) != 1 || v[0].From != 3 || v[0].NewestFrom != 53 || v[0].To != 102 || v[0].Seconds != 2 {
		t.Errorf("got %+v, want one verdict on steps 3 to 102, with the times of steps 53 to 102", v)
	}
}
