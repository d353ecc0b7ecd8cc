//go:build cgo && linux

package native

import (
	"reflect"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// params represents a parameter struct of C.
type params struct {
	stride     [3]int32
	_func      int32
	num_axes   int32
	axes       [4]int64
	count_zero int32
	count      uint32
	eps        float32
	reserved   int32
	list       *segment
	num_list   int64
}

type segment struct {
	lr_scale float32
	start    int64
}

type listed struct {
	Start   int64
	LRScale float32
}

type inner struct{ Stride [2]int }

type fields struct {
	inner
	Func          device.UnaryFunc
	Axes          []int
	CountZero     bool
	Count         uint32
	Eps           float64
	List          []listed
	To            tensor.DType // this field is in the specs, not in params
	Shape         tensor.Shape
	Height, Width int
}

func TestParametersFollowTheNamesOfTheFields(t *testing.T) {
	var a arena
	defer a.free()
	got := params{}
	err := encode(&a, reflect.ValueOf(&got).Elem(),
		fields{inner: inner{[2]int{5, 6}}, Func: device.Exp, Axes: []int{3, 1}, CountZero: true,
			Count: 1 << 31, Eps: 0.5, List: []listed{{1 << 40, 2}, {3, 4}}, To: tensor.F32, Shape: tensor.Shape{7},
			Height: 8})
	if err != nil {
		t.Fatal(err)
	}
	if list := (*[2]segment)(reflect.ValueOf(got.list).UnsafePointer()); *list != [2]segment{{2, 1 << 40}, {4, 3}} {
		t.Errorf("list: got %v", *list)
	}
	got.list = nil
	want := params{stride: [3]int32{5, 6}, _func: int32(device.Exp), num_axes: 2, axes: [4]int64{3, 1}, count_zero: 1,
		count: 1 << 31, eps: 0.5, num_list: 2}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestParametersThatDoNotFitAreRefused(t *testing.T) {
	var a arena
	defer a.free()
	for _, c := range []struct {
		name, want string
		from       any
	}{
		{"a field without a counterpart", "field heads", struct{ Heads int }{2}},
		{"a zero field without a counterpart", "field heads", struct{ Heads int }{}},
		{"too many elements", "parameter axes: got 5 values, want at most 4", struct{ Axes []int }{make([]int, 5)}},
		{"a large integer", "got 4294967296, want an integer of 32 bits", struct{ CountZero int }{1 << 32}},
	} {
		err := encode(&a, reflect.ValueOf(&params{}).Elem(), c.from)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.name, err, c.want)
		}
	}
}

// foreign is an op of another package. It has the kind of an op of package device.
type foreign struct{ device.Linear }

func TestOnlyOpsOfPackageDeviceHaveParameters(t *testing.T) {
	var a arena
	defer a.free()
	if _, _, _, err := parameters(&a, foreign{}); err == nil || !strings.Contains(err.Error(), "native.foreign") {
		t.Errorf("got %v, want an error that names the type", err)
	}
	if _, _, _, err := parameters(&a, device.Linear{To: tensor.F32}); err != nil {
		t.Error(err)
	}
}
