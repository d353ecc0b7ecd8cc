package compute

import (
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
)

func TestEachRankGetsTheTypeOfItsDevice(t *testing.T) {
	timed := func(bf16, f32 float64) map[string]float64 { return map[string]float64{"bf16": bf16, "f32": f32} }
	typed := func(device, dt string) typeReport {
		return typeReport{RankType: devices.RankType{Device: device, Type: dt}}
	}
	clock := func(device string, bf16, f32 float64) typeReport {
		return typeReport{RankType: devices.RankType{Device: device}, Seconds: timed(bf16, f32)}
	}
	kept := func(device, dt string) typeReport {
		return typeReport{RankType: devices.RankType{Device: device, Type: dt}, Kept: true}
	}
	for _, c := range []struct {
		name    string
		reports []typeReport
		want    string
	}{
		{"what is set or documented stays", []typeReport{typed("gpu a", "bf16"), typed("gpu b", "f16"),
			typed("cpu", "f32")}, "bf16 (rank 0), f16 (rank 1), f32 (rank 2)"},
		{"the faster one", []typeReport{clock("cpu", 1, 2)}, "bf16"},
		{"the faster one, where it is f32", []typeReport{clock("cpu", 2, 1)}, "f32"},
		{"ranks with devices alike decide together",
			[]typeReport{clock("cpu", 1, 0.8), clock("cpu", 1, 2), clock("cpu", 1, 2)}, "bf16"},
		{"devices that differ decide alone", []typeReport{clock("cpu a", 2, 1), clock("cpu b", 1, 2)},
			"f32 (rank 0), bf16 (rank 1)"},
		{"what one rank knows from before", []typeReport{clock("cpu", 1, 2), kept("cpu", "f32")}, "f32"},
		{"what the first rank knows, where ranks disagree", []typeReport{kept("cpu", "bf16"), kept("cpu", "f32")},
			"bf16"},
	} {
		if got := TypesText(agreeTypes(c.reports)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestRanksAreNamedInRanges(t *testing.T) {
	types := make([]devices.RankType, 9)
	for rank := range types {
		types[rank].Type = "bf16"
	}
	types[3].Type, types[7].Type, types[8].Type = "f32", "f32", "f16"
	if got, want := TypesText(types), "bf16 (ranks 0 to 2, 4 to 6), f32 (ranks 3, 7), f16 (rank 8)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
