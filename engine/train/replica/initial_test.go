package replica

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/nn/random"
	"github.com/hetero-train/hetero-train/engine/plan"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

func TestInitialValuesDependOnNameSeedAndIndexOnly(t *testing.T) {
	for _, n := range []int{1, 1 << 16, 3<<16 + 5} { // less than one piece, one piece, several pieces
		p := plan.ParamInfo{Name: "w", Init: graph.Normal(0.02), Spec: device.Spec(tensor.F32, n)}
		got, want := initialValues(p, 7, make([]byte, 8*p.Spec.Shape.Elements())), random.New(7, "w")
		if len(got) != 4*n {
			t.Fatalf("%d elements: got %d bytes, want %d", n, len(got), 4*n)
		}
		for i := range n {
			if v := math.Float32frombits(binary.LittleEndian.Uint32(got[4*i:])); v != float32(
				want.Gaussian(uint64(i), 0, 0.02)) {
				t.Fatalf("%d elements: element %d: got %g, want %g", n, i, v,
					float32(want.Gaussian(uint64(i), 0, 0.02)))
			}
		}
	}
}
