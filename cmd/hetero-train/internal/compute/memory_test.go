package compute

import (
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/device/null"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// Go's runtime gets the memory that native memory leaves. The reference device allocates on Go's heap.
func TestGoGetsWhatRemains(t *testing.T) {
	native, err := null.New(null.Model{})
	if err != nil {
		t.Fatal(err)
	}
	const gib, mib = 1 << 30, 1 << 20
	account := memory.Account{Unified: true, Limit: memory.Limit{Bytes: 64 * gib},
		Device: []memory.Part{{Name: "activations", Bytes: 8 * gib}},
		Host: []memory.Part{{Name: replica.ProgramFiles, Bytes: 60 * mib}, {Name: replica.Results, Bytes: 4 * mib},
			{Name: "training batches", Bytes: 100 * mib}}}
	gpu := account
	gpu.Unified = false
	short := account
	short.Limit.Bytes = 1
	for _, c := range []struct {
		name    string
		rank    Rank
		account memory.Account
		want    int64
	}{
		{"device in host memory", Rank{Device: native}, account, 56*gib - 64*mib},
		{"reference", Rank{Device: reference.New()}, account, 64*gib - 64*mib},
		{"GPU", Rank{Device: native}, gpu, 64*gib - 64*mib},
	} {
		if got := c.rank.GoLimit(c.account); got != c.want {
			t.Errorf("%s: got %d MiB, want %d", c.name, got/mib, c.want/mib)
		}
	}
	if got := (&Rank{Device: native}).GoLimit(short); got < mib {
		t.Errorf("a limit of 1 byte: got %d bytes, want what Go uses already", got)
	}
}

// Two containers of a machine may contain processes with the same process id. Ranks on other machines do not count.
func TestRanksOfOtherNamespacesAreHidden(t *testing.T) {
	members := []rendezvous.Member{{Host: "a", PID: 7}, {Host: "a", PID: 7}, {Host: "a", PID: 9}, {Host: "b", PID: 11}}
	for _, c := range []struct {
		spaces []string
		want   []int
	}{
		{[]string{"x", "y", "x", "x"}, []int{memory.Hidden, 9}},
		{[]string{"x", "x", "x", "x"}, []int{7, 9}},
		{nil, []int{memory.Hidden, memory.Hidden}},
	} {
		if got := otherProcesses(members, 0, c.spaces); !slices.Equal(got, c.want) {
			t.Errorf("namespaces %v: got %v, want %v", c.spaces, got, c.want)
		}
	}
}
