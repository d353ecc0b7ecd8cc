package devices

import (
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

func TestARunThatGoesOnKeepsItsTypes(t *testing.T) {
	mixed := []RankType{{"gpu", "bf16"}, {"cpu", "f32"}}
	for _, c := range []struct {
		name   string
		before []RankType
		device string
		types  []tensor.DType
		want   string
	}{
		{"a fresh run", nil, "cpu", []tensor.DType{tensor.BF16, tensor.F32}, ""},
		{"the same device", mixed, "cpu", []tensor.DType{tensor.BF16, tensor.F32}, "f32"},
		{"another device that can do it", mixed, "another cpu", []tensor.DType{tensor.BF16, tensor.F32}, "bf16"},
		{"another device that can do one of them", mixed, "old cpu", []tensor.DType{tensor.F32}, "f32"},
		{"a device that can do none", mixed, "old gpu", []tensor.DType{tensor.F16}, ""},
		{"the same device, which cannot do it any more", mixed, "gpu", []tensor.DType{tensor.F16}, ""},
		{"a GPU that is fast in bf16 goes on in f16", []RankType{{"old gpu", "f16"}}, "gpu",
			[]tensor.DType{tensor.BF16, tensor.F16}, "f16"},
	} {
		if got := TypeBefore(c.before, c.device, c.types); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestAutoFollowsTheDevice(t *testing.T) {
	for _, c := range []struct {
		info  device.Info
		want  []tensor.DType
		timed bool
	}{
		{device.Info{Kind: "cuda", FastBF16: true}, []tensor.DType{tensor.BF16, tensor.F16}, false},
		{device.Info{Kind: "cuda"}, []tensor.DType{tensor.F16}, false},
		{device.Info{Kind: "cpu", FastBF16: true}, []tensor.DType{tensor.BF16, tensor.F32}, true},
		{device.Info{Kind: "cpu"}, []tensor.DType{tensor.F32}, false},
		{device.Info{Kind: "null", FastBF16: true, Modelled: true}, []tensor.DType{tensor.BF16}, false},
	} {
		if types, timed := AutoTypes(c.info); !slices.Equal(types, c.want) || timed != c.timed {
			t.Errorf("%+v: got %v, timed %v, want %v, %v", c.info, types, timed, c.want, c.timed)
		}
	}
}
