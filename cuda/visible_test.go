package cuda

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
)

// Each value must select the GPUs that NVIDIA documents. If NVIDIA's driver would hide GPUs silently, the value must
// cause an error.
func TestVisibleDevices(t *testing.T) {
	const a, b = "MIG-0a1b", "MIG-2c3d"
	for _, c := range []struct {
		text   string
		set    bool
		shown  int // number of GPUs that the driver reports
		names  string
		want   string // text of the error; "": no error
		absent bool   // the error must be a device.AbsentError
	}{
		{text: "", shown: 4},
		{text: "", set: true, want: `CUDA_VISIBLE_DEVICES="" hides all GPUs`, absent: true},
		{text: "  ", set: true, want: "hides all", absent: true},
		{text: "-1", set: true, want: `CUDA_VISIBLE_DEVICES="-1" hides all GPUs`, absent: true},
		{text: "-1,0", set: true, want: "hides all", absent: true},
		{text: "NoDevFiles", set: true, want: `"NoDevFiles" is not a number, GPU-… or MIG-…`},
		{text: "0", set: true, shown: 1, names: "0"},
		{text: " 2, 1 ", set: true, shown: 2, names: "2 1"},
		{text: "0,2,-1,1", set: true, shown: 2, names: "0 2"},
		{text: "0,two,1", set: true, shown: 1, names: "0",
			want: `names 3 GPUs, the driver shows 1: there is no GPU "two", and CUDA hides all entries after it`},
		{text: "0,,1", set: true, shown: 1, names: "0", want: `there is no GPU ""`},
		{text: "0,7,1", set: true, shown: 1, names: "0 7 1",
			want: `names 3 GPUs, the driver shows 1: there is no GPU "7"`},
		{text: "1,1", set: true, shown: 0, names: "1 1", want: "names 1 twice, want each GPU once"},
		{text: "GPU-8932f937,GPU-77", set: true, shown: 2, names: "GPU-8932f937 GPU-77"},
		{text: "GPU-,0", set: true, want: `"GPU-" is not a number`},
		{text: a + "," + b, set: true, shown: 1, names: a + " " + b},
		{text: a + "," + a, set: true, shown: 1, names: a + " " + a, want: "twice"},
		{text: a, set: true, shown: 0, names: a, want: "names 1 GPUs, the driver shows 0"},
	} {
		v := ReadVisible(c.text, c.set)
		if got := strings.Join(v.Names, " "); got != c.names {
			t.Errorf("%q: got names %q, want %q", c.text, got, c.names)
		}
		err := v.hidden()
		if err == nil {
			err = v.check(c.shown)
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q: got %v, want %q", c.text, err, c.want)
		}
		absent := errors.As(err, new(device.AbsentError))
		if err != nil && (!errors.Is(err, device.ErrUnavailable) || absent != c.absent) {
			t.Errorf("%q: got %v, unavailable %v, absent %v, want the latter %v", c.text, err,
				errors.Is(err, device.ErrUnavailable), absent, c.absent)
		}
	}
}

// CUDA shows a process only one MIG slice, so each rank must get its own slice.
func TestSlicesAreDealtOut(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"MIG-a,MIG-b,MIG-c", []string{"MIG-a", "MIG-b", "MIG-c", ""}},
		{"MIG-a", []string{"", ""}},
		{"0,1", []string{"", ""}},
	} {
		var got []string
		for local := range c.want {
			got = append(got, ReadVisible(c.text, true).Of(local))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q: got %q, want %q", c.text, got, c.want)
		}
	}
}
