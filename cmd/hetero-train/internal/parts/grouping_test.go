package parts

import (
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data/tokens"
)

func TestStepsArePaddedToFewLengths(t *testing.T) {
	for _, c := range []struct {
		shortest, length int
		want             []int
	}{
		{3, 128, []int{16, 32, 48, 64, 80, 96, 112}},
		{40, 128, []int{48, 64, 80, 96, 112}},
		{3, 512, []int{64, 128, 192, 256, 320, 384, 448}},
		{3, 20, []int{8, 16}},
		{3, 8, nil},
		{0, 128, nil}, // all samples have 128 tokens
	} {
		m, err := tokens.NewMarkov(tokens.MarkovOptions{Vocabulary: 8, Entropy: 1, Length: c.length,
			Shortest: c.shortest, Samples: 5000})
		if err != nil {
			t.Fatal(err)
		}
		if got := shorterLengths(m, c.length); !slices.Equal(got, c.want) {
			t.Errorf("%d to %d tokens: got %v, want %v", c.shortest, c.length, got, c.want)
		}
	}
}
