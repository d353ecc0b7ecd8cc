package exchange

import (
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

func TestNCCLIsChosenWhereAllRanksCan(t *testing.T) {
	const no = "device cpu:0 is not a GPU"
	for _, c := range []struct {
		backend string
		share   bool
		noNCCL  []string
		want    bool
		fault   string
	}{
		{"auto", false, []string{"", ""}, true, ""},
		{"auto", false, []string{"", no}, false, ""},
		{"auto", true, []string{"", ""}, false, ""},
		{"nccl", false, []string{"", ""}, true, ""},
		{"nccl", true, []string{"", ""}, true, ""},
		{"nccl", false, []string{"", no}, false, "rank 1 cannot use NCCL: " + no},
		{"gloo", false, []string{"", ""}, false, ""},
	} {
		got, err := choosesNCCL(c.backend, c.share, c.noNCCL)
		if got != c.want || (err != nil) != (c.fault != "") || err != nil &&
			(!strings.Contains(err.Error(), c.fault) || exit.Code(err) != exit.Usage) {
			t.Errorf("%+v: got %v and %v", c, got, err)
		}
	}
}
