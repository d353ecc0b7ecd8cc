package simulate_test

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/simulate"
)

func TestReadCurves(t *testing.T) {
	want := []divide.Curve{{{Samples: 1, Seconds: 0.5}, {Samples: 8, Seconds: 2}}, {{Samples: 4.5, Seconds: 1}}}
	for name, text := range map[string]string{
		"in order":                      "rank,batch,seconds\n0,1,0.5\n0,8,2\n1,4.5,1\n",
		"without a header":              "0,1,0.5\n0,8,2\n1,4.5,1",
		"in any order":                  "1,4.5,1\n0,8,2\n0,1,0.5\n",
		"with blanks and comments":      "# measured twice\n\n Rank, Batch, Seconds \n0, 1 ,0.5\n\n# rank 1\n 1,4.5,1e0 \n0,8,2\n",
		"with carriage returns":         "rank,batch,seconds\r\n0,1,0.5\r\n0,8,2\r\n1,4.5,1\r\n",
		"with the mark of UTF-8 before": "\ufeffrank,batch,seconds\n0,1,0.5\n0,8,2\n1,4.5,1\n",
	} {
		got, warnings, err := simulate.ReadCurves(strings.NewReader(text))
		if err != nil || len(warnings) > 0 || !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%s: got %v, warnings %q, error %v, want %v", name, got, warnings, err, want)
		}
	}
}

func TestReadCurvesWarnsWhereTimesFall(t *testing.T) {
	curves, warnings, err := simulate.ReadCurves(strings.NewReader("0,1,1\n0,2,1\n1,1,3\n1,2,2\n1,3,1\n"))
	want := []string{
		"the time falls at a larger batch in 2 places; the steepest: rank 1 from 2 s at batch 2 to 1 s at batch 3"}
	if err != nil || len(curves) != 2 || !slices.Equal(warnings, want) {
		t.Errorf("got %v, warnings %q, error %v, want warnings %q", curves, warnings, err, want)
	}
}

func TestReadCurvesNamesFaults(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"nothing", "", "no points: want lines of rank,batch,seconds"},
		{"a header alone", "rank,batch,seconds\n# none yet\n", "no points: want lines of rank,batch,seconds"},
		{"two columns", "0,1\n", `line 1: got "0,1", want rank,batch,seconds`},
		{"four columns", "rank,batch,seconds\n0,1,1,1\n", `line 2: got "0,1,1,1", want rank,batch,seconds`},
		{"semicolons", "0;1;1\n", `line 1: got "0;1;1", want rank,batch,seconds`},
		{"a header of other columns", "rank,samples,ms\n0,1,1\n",
			`line 1: header: got "rank,samples,ms", want rank,batch,seconds`},
		{"a header in the middle", "0,1,1\nrank,batch,seconds\n",
			`line 2: rank: got "rank", want an integer from 0 to 1048575`},
		{"a rank below 0", "-1,1,1\n", `line 1: rank: got "-1", want an integer from 0 to 1048575`},
		{"a rank that is none", "1.0,1,1\n", `line 1: rank: got "1.0", want an integer from 0 to 1048575`},
		{"a rank beyond all clusters", "1048576,1,1\n",
			`line 1: rank: got "1048576", want an integer from 0 to 1048575`},
		{"a batch of 0", "0,0,1\n", `line 1: batch: got "0", want a finite number above 0`},
		{"a batch of NaN", "0,NaN,1\n", `line 1: batch: got "NaN", want a finite number above 0`},
		{"an endless batch", "0,inf,1\n", `line 1: batch: got "inf", want a finite number above 0`},
		{"a batch beyond floats", "0,1e999,1\n", `line 1: batch: got "1e999", want a finite number above 0`},
		{"a negative time", "0,1,-1\n", `line 1: seconds: got "-1", want a number from 1e-09 to 1e+09`},
		{"no time", "0,1,\n", `line 1: seconds: got "", want a number from 1e-09 to 1e+09`},
		{"a time of 40 years", "0,1,1.2e9\n", `line 1: seconds: got "1.2e9", want a number from 1e-09 to 1e+09`},
		{"a time below a nanosecond", "0,1,1e-10\n", `line 1: seconds: got "1e-10", want a number from 1e-09 to 1e+09`},
		{"a long line", strings.Repeat("x", 100) + "\n", `line 1: got "` + strings.Repeat("x", 60) +
			`"… (100 bytes), want rank,batch,seconds`},
		{"all faults at once", "0,1,x\n\n0,2,1\nx,1,1\n", "line 1: seconds: got \"x\", want a number from 1e-09 to 1e+09\nline 4: rank: got \"x\", want an integer from 0 to 1048575"},
		{"ten faults of many", strings.Repeat("x\n", 50),
			strings.TrimSuffix(strings.Repeat("line N: got \"x\", want rank,batch,seconds\n", 10), "\n")},
		{"a gap", "0,1,1\n2,1,1\n",
			"rank 1 has no points: the file has 2 of the ranks, want ranks numbered from 0 without gaps"},
		{"no rank 0", "1,1,1\n",
			"rank 0 has no points: the file has 1 of the ranks, want ranks numbered from 0 without gaps"},
		{"a batch twice", "0,1,1\n0,2,1\n0,1,2\n",
			"line 3: rank 0: got batch 1 a second time (first in line 1), want each batch once"},
		{"a line without end", "# " + strings.Repeat("x", 1<<17),
			"line 1: got more than 65536 bytes, want rank,batch,seconds"},
	}
	for _, test := range tests {
		curves, warnings, err := simulate.ReadCurves(strings.NewReader(test.text))
		if err == nil || curves != nil || warnings != nil {
			t.Errorf("%s: got %v, warnings %q, error %v, want an error alone", test.name, curves, warnings, err)
			continue
		}
		got := err.Error()
		if strings.Contains(test.want, "line N") {
			for _, n := range []string{"10", "1", "2", "3", "4", "5", "6", "7", "8", "9"} {
				got = strings.Replace(got, "line "+n+":", "line N:", 1)
			}
		}
		if got != test.want {
			t.Errorf("%s: got error\n%s\nwant\n%s", test.name, got, test.want)
		}
	}
}

func TestReadCurvesReportsAReaderThatFails(t *testing.T) {
	broken := errors.New("disk on fire")
	_, _, err := simulate.ReadCurves(failing{broken})
	if !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
	if err := simulate.WriteCurves(failing{broken}, []divide.Curve{{{Samples: 1, Seconds: 1}}}); !errors.Is(err,
		broken) {
		t.Errorf("writing: got %v, want %v", err, broken)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error)  { return 0, f.err }
func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestWriteCurvesRefusesWhatCannotBeRead(t *testing.T) {
	line := divide.Curve{{Samples: 1, Seconds: 1}}
	for _, test := range []struct {
		curves []divide.Curve
		want   string
	}{
		{nil, "no curves"},
		{[]divide.Curve{line, nil}, "rank 1: got a curve without points"},
		{[]divide.Curve{{{Samples: 2, Seconds: 1}, {Samples: 1, Seconds: 1}}},
			"rank 0: point 1: got 1 samples after 2, want ascending numbers of samples"},
		{[]divide.Curve{line, {{Samples: 1, Seconds: 0}}}, "rank 1: point 0: got 0 s, want 1e-09 to 1e+09 s"},
	} {
		var b bytes.Buffer
		if err := simulate.WriteCurves(&b, test.curves); err == nil || err.Error() != test.want || b.Len() > 0 {
			t.Errorf("%v: got %q and error %v, want error %s", test.curves, &b, err, test.want)
		}
	}
}

func TestCurvesSurviveAFile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.Float64Range(math.SmallestNonzeroFloat64, math.MaxFloat64)
		curves := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) divide.Curve {
			samples := rapid.SliceOfNDistinct(number, 1, 8, rapid.ID).Draw(t, "samples")
			slices.Sort(samples)
			c := make(divide.Curve, len(samples))
			for i, s := range samples {
				c[i] = divide.Point{Samples: s, Seconds: rapid.Float64Range(1e-9, 1e9).Draw(t, "seconds")}
			}
			return c
		}), 1, 5).Draw(t, "curves")
		var b bytes.Buffer
		if err := simulate.WriteCurves(&b, curves); err != nil {
			t.Fatal(err)
		}
		got, _, err := simulate.ReadCurves(&b)
		if err != nil || !slices.EqualFunc(got, curves, slices.Equal) {
			t.Fatalf("got %v (%v), want %v", got, err, curves)
		}
	})
}

func FuzzReadCurves(f *testing.F) {
	for _, seed := range []string{"", "rank,batch,seconds\n0,1,0.5\n0,8,2\n1,4.5,1\n", "# comment\n\n0,1,1",
		"1,1,1\n0,1e308,5e-324\n", "0,1,1\n0,1,1\n", "0,1,2\n0,2,1\n",
		"0,NaN,1\n", "0,0x1p-2,1\n", "-0,1_0,+1\n", "1048575,1,1\n", "\ufeff0,1,1\n", ",,\n", "\x00"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		curves, warnings, err := simulate.ReadCurves(bytes.NewReader(text))
		if err != nil {
			if curves != nil || warnings != nil || strings.TrimSpace(err.Error()) == "" {
				t.Fatalf("with error %v got %v, warnings %q", err, curves, warnings)
			}
			return
		}
		falls := false
		for rank, c := range curves {
			if err := c.Check(); err != nil {
				t.Fatalf("rank %d: %v", rank, err)
			}
			falls = falls || !c.Rises()
		}
		if len(curves) == 0 || falls != (len(warnings) > 0) {
			t.Fatalf("got %v, warnings %q", curves, warnings)
		}
		var b bytes.Buffer
		if err := simulate.WriteCurves(&b, curves); err != nil {
			t.Fatal(err)
		}
		if again, _, err := simulate.ReadCurves(&b); err != nil || !slices.EqualFunc(again, curves, slices.Equal) {
			t.Fatalf("written and read again: got %v (%v), want %v", again, err, curves)
		}
	})
}
