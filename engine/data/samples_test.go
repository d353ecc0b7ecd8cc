package data

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/hetero-train/hetero-train/engine/tensor"
)

// rows are samples that are not images: each has a row of numbers and a weight. One call reads all samples of a group.
type rows struct {
	n, width, group int
	broken          int // index of the sample that cannot be read; 0: none
}

func (r rows) Len() int { return r.n }

func (r rows) Layout(o *Options) (Layout, error) {
	if o.Evaluate && r.group > 1 {
		return Layout{}, fmt.Errorf("groups of %d in an evaluation", r.group)
	}
	return Layout{Fields: []Field{{Name: "row", DType: tensor.I32, Shape: []int{r.width}, Pad: 0xff},
		{Name: "weight", DType: tensor.F32}}, Group: r.group}, nil
}

func (r rows) NewSource(o *Options) (Source, error) { return &rowSource{rows: r, seed: o.Seed}, nil }

type rowSource struct {
	rows
	seed uint64
}

func (s *rowSource) Close() error { return nil }

func (s *rowSource) Read(span *Span, errs []error) {
	for j := span.Lo; j < span.Hi; j++ {
		row, weight := s.values(int(span.Index[j]), span.Epoch, span.First+j)
		copy(elements[int32](span.Field(0, j)), row)
		elements[float32](span.Field(1, j))[0] = weight
		errs[j-span.Lo] = nil
		if s.broken > 0 && int(span.Index[j]) == s.broken {
			errs[j-span.Lo] = &Fault{Op: "read row", Index: s.broken, Err: errBroken}
		}
	}
}

// values returns the row and the weight of a sample. They depend only on the sample, the epoch and the position.
func (s *rowSource) values(index, epoch, position int) (row []int32, weight float32) {
	for k := range s.width {
		row = append(row, int32(1000*index+100*epoch+10*k+int(s.seed)))
	}
	return row, float32(position)
}

func TestAnySamplesAreLoadedInAnySplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		samples := rows{n: rapid.IntRange(24, 60).Draw(t, "samples"), width: rapid.IntRange(1, 40).Draw(t, "width"),
			group: rapid.IntRange(0, 4).Draw(t, "group")}
		o := Options{Samples: samples, Seed: 7, BatchSize: 12, Workers: rapid.IntRange(1, 3).Draw(t, "workers")}
		source := &rowSource{rows: samples, seed: o.Seed}
		cut := rapid.IntRange(0, 12).Draw(t, "cut")
		for _, share := range []Share{{0, cut}, {cut, 12 - cut}} {
			o.Share = &share
			l, err := NewLoader(o)
			if err != nil {
				t.Fatalf("%v", err)
			}
			for step := range 2 * l.BatchesPerEpoch() {
				b, err := l.Next(t.Context())
				if err != nil {
					t.Fatalf("%v", err)
				}
				row, weight := Values[int32](b, "row"), Values[float32](b, "weight")
				if len(row) != share.Count*samples.width || len(weight) != share.Count ||
					len(Values[int64](b, IDs)) != share.Count {
					t.Fatalf("%d numbers, %d weights of %d samples", len(row), len(weight), share.Count)
				}
				for i := range b.N {
					want, position := source.values(int(b.IDs[i]), b.Epoch, step%l.BatchesPerEpoch()*12+b.Offset+i)
					if got := row[i*samples.width:][:samples.width]; !slices.Equal(got, want) || weight[i] != position {
						t.Fatalf("step %d, sample %d: got %v and %v, want %v and %v", step, b.IDs[i], got, weight[i],
							want, position)
					}
				}
				b.Release()
			}
			if err := l.Close(); err != nil {
				t.Fatalf("%v", err)
			}
		}
	})
}

func TestFaultsAndOptionsOfAnySamplesAreReported(t *testing.T) {
	l, err := NewLoader(Options{Samples: rows{n: 4, width: 1, broken: 3}, BatchSize: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := l.Next(t.Context()); err == nil || !strings.Contains(err.Error(), "read row 3: broken") {
		t.Errorf("got %v, want the fault of row 3", err)
	}
	if _, err := NewLoader(Options{Samples: rows{n: 4, width: 1, group: 2}, BatchSize: 4,
		Evaluate: true}); err == nil || !strings.Contains(err.Error(), "groups of 2") {
		t.Errorf("got %v, want the error of Layout", err)
	}
	if _, err := NewLoader(Options{BatchSize: 4}); err == nil || !strings.Contains(err.Error(), "no samples") {
		t.Errorf("got %v, want an error without samples", err)
	}
}

func TestValuesOfAnotherTypeOrNameAreNil(t *testing.T) {
	b := next(t, load(t, Options{Samples: rows{n: 4, width: 2}, BatchSize: 4}))
	defer b.Release()
	if Values[float32](b, "row") != nil || Values[int32](b, "rows") != nil || len(Values[int32](b, "row")) != 8 {
		t.Error("Values found the wrong field")
	}
}
