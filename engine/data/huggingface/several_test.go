package huggingface

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data"
)

// labelsOf describes the labels of all samples: first the training part, then the evaluation part.
func labelsOf(s data.Splits) (text string) {
	for _, part := range []data.Dataset{s.Train, s.Eval} {
		if part == nil {
			continue
		}
		for i := range part.Len() {
			text += fmt.Sprint(s.Sets.Sets[part.Label(i)], " ")
		}
	}
	return strings.TrimSpace(text)
}

func TestSeveralLabelsPerImage(t *testing.T) {
	const images = "[0 2] [1] [] [0 2] [0 1 2] [1]"
	flowers := []string{"rose", "daisy", "tulip"}
	csv := map[string]string{"1.png": "", "2.png": "", "3.png": "",
		"metadata.csv": "file_name,label\n1.png,rose|daisy\n2.png,\n3.png, tulip | rose \n"}
	for name, c := range map[string]struct {
		path   string
		change func(*Options)
		names  []string
		want   string
	}{
		"list of ClassLabels on disk":    {path: "testdata/several_disk", names: flowers, want: images},
		"list of ClassLabels in Parquet": {path: "testdata/several.parquet", names: flowers, want: images},
		"texts": {path: plant(t, csv), change: func(o *Options) { o.Separator = "|" },
			names: []string{"daisy", "rose", "tulip"}, want: "[0 1] [] [1 2]"},
		"lists in JSON lines": {path: plant(t, map[string]string{"1.png": "", "2.png": "",
			"metadata.jsonl": `{"file_name": "1.png", "label": ["b", "a"]}` + "\n" + `{"file_name": "2.png", "label": []}`}),
			names: []string{"a", "b"}, want: "[0 1] []"},
		"lists of numbers": {path: plant(t, map[string]string{"1.png": "", "2.png": "",
			"metadata.jsonl": `{"file_name": "1.png", "label": [10, 2]}` + "\n" + `{"file_name": "2.png", "label": [0]}`}),
			names: strings.Fields("0 1 2 3 4 5 6 7 8 9 10"), want: "[2 10] [0]"},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, c.path)
			o.ValFraction = 0
			if c.change != nil {
				c.change(&o)
			}
			s, err := Open(context.Background(), o)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if s.Sets == nil || fmt.Sprint(s.Sets.Names) != fmt.Sprint(c.names) {
				t.Fatalf("got labels %+v, want %q", s.Sets, c.names)
			}
			if got := labelsOf(s); got != c.want {
				t.Errorf("got the labels %s, want %s", got, c.want)
			}
			for i := range s.Train.Len() {
				if got, want := s.Train.Classes()[s.Train.Label(i)], s.Sets.Describe(s.Train.Label(i)); got != want {
					t.Errorf("sample %d: got the class %q, want %q", i, got, want)
				}
			}
		})
	}
}

// data.num_samples chooses samples by the numbers of their label sets. These numbers must therefore not depend on the
// order of the rows.
func TestNumbersOfSetsDoNotDependOnTheOrderOfRows(t *testing.T) {
	var want string
	for _, rows := range []string{"1.png,a|b\n2.png,c\n3.png,b\n", "3.png,b\n2.png,c\n1.png,b|a\n"} {
		o := options(t, plant(t, map[string]string{"1.png": "", "2.png": "", "3.png": "",
			"metadata.csv": "file_name,label\n" + rows}))
		o.Separator, o.ValFraction = "|", 0
		s, err := Open(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		got := fmt.Sprint(s.Sets.Sets, s.Train.Classes())
		if want == "" {
			want = got
		}
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestFaultyListsOfLabelsAreRefused(t *testing.T) {
	two := func(first, second string) map[string]string {
		return map[string]string{"1.png": "", "2.png": "",
			"metadata.jsonl": `{"file_name": "1.png", "label": ` + first + "}\n" + `{"file_name": "2.png", "label": ` + second + "}"}
	}
	for name, c := range map[string]struct {
		path, separator, want string
	}{
		"vectors of 0 and 1":      {path: "testdata/vectors.parquet", want: "appears twice: want a list of the labels of the image; convert"},
		"a separator for lists":   {path: "testdata/several_disk", separator: "|", want: "data.label_separator: column \"labels\" has list of integers"},
		"a separator for numbers": {path: "testdata/images_disk", separator: "|", want: "data.label_separator: column \"label\" has integer"},
		"lists and one label":     {path: plant(t, two(`["a"]`, `"a"`)), want: "line 2: it has one label per row"},
		"one label and lists":     {path: plant(t, two(`"a"`, `["a"]`)), want: "line 2: it has several labels per row"},
		"a vector of booleans":    {path: plant(t, two(`[true, false]`, `[false, true]`)), want: "is a list of true and false"},
		"-1 among numbers":        {path: plant(t, two(`[0, -1]`, `[1]`)), want: "label -1 among numbers"},
		"a list in a list":        {path: plant(t, two(`[["a"]]`, `[]`)), want: "is an object or a list"},
		"a missing element":       {path: plant(t, two(`["a", null]`, `[]`)), want: "no value of"},
		"an empty element":        {path: plant(t, two(`["a", ""]`, `[]`)), want: "one of the labels is empty"},
		"no labels at all":        {path: plant(t, two(`[]`, `[]`)), want: "no image has a label"},
		"an empty piece":          {path: plant(t, two(`"a||b"`, `"a"`)), separator: "|", want: "one of the labels is empty"},
		"a label twice":           {path: plant(t, two(`"a|a"`, `"a"`)), separator: "|", want: `label "a" appears twice in one row`},
	} {
		o := options(t, c.path)
		o.Separator = c.separator
		if strings.HasSuffix(c.path, "several_disk") || strings.HasSuffix(c.path, ".parquet") {
			o.Label = "labels"
		}
		_, err := Open(context.Background(), o)
		if fault := (*data.Fault)(nil); !errors.As(err, &fault) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want a fault with %q", name, err, c.want)
		}
	}
}
