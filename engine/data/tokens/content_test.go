package tokens

import (
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data"
)

// sumsOf returns two hashes of each unit: one of its properties and one of its content.
func sumsOf(t *testing.T, c data.Content) (listed, read []uint64) {
	t.Helper()
	s, err := c.NewSummer()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range c.Len() {
		sum, _, err := s.Sum(i)
		if err != nil {
			t.Fatal(err)
		}
		listed, read = append(listed, c.Listed(i)), append(read, sum)
	}
	return listed, read
}

func differing(a, b []uint64) (units []int) {
	for i := range a {
		if a[i] != b[i] {
			units = append(units, i)
		}
	}
	return units
}

func TestBlocksCoverEveryToken(t *testing.T) {
	tokens := count(3*contentBlock+100, 9)
	one := Content(corpus(t, testHeader(), tokens, 2), corpus(t, testHeader(), tokens[:10], 1))
	if one.Len() != 5 { // two shards of 1.5 blocks have two units each, and a third shard has one
		t.Fatalf("got %d units, want 5", one.Len())
	}
	if got, want := one.Name(1), "train-000000.bin, tokens 32768 to 49201"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	listed, read := sumsOf(t, one)
	for _, at := range []int{0, contentBlock - 1, contentBlock, contentBlock*3/2 + 49, contentBlock*3/2 + 50,
		len(tokens) - 1} {
		changed := append([]int32(nil), tokens...)
		changed[at]++
		otherListed, otherRead := sumsOf(t,
			Content(corpus(t, testHeader(), changed, 2), corpus(t, testHeader(), tokens[:10], 1)))
		if d := differing(read, otherRead); len(d) != 1 {
			t.Errorf("token %d: units %v differ, want one", at, d)
		}
		if d := differing(listed, otherListed); len(d) != 2 { // both contain the checksum of the shard
			t.Errorf("token %d: the properties of units %v differ, want those of one shard", at, d)
		}
	}
}

func TestLabelledTextsHaveUnits(t *testing.T) {
	one := TextContent(labelled(t), labelled(t))
	if one.Len() != 192 || one.Name(100) != "text 5 of file 2" {
		t.Fatalf("got %d units, unit 100 is %q", one.Len(), one.Name(100))
	}
	open := func(change func(string) string) data.Content {
		c, err := OpenClassification(t.Context(),
			ClassificationOptions{Path: writeFile(t, "a.tsv", []byte(change("label\ttext\n0\ta b\n1\tb\n0\tc\n"))),
				Tokenizer: wordPiece(t), Length: 16})
		if err != nil {
			t.Fatal(err)
		}
		return TextContent(c)
	}
	listed, _ := sumsOf(t, open(func(s string) string { return s }))
	for text, unit := range map[[2]string]int{{"0\ta b", "1\ta b"}: 0, {"0\ta b", "0\ta a"}: 0, {"0\tc", "0\td"}: 2} {
		other, _ := sumsOf(t, open(func(s string) string { return strings.Replace(s, text[0], text[1], 1) }))
		if d := differing(listed, other); len(d) != 1 || d[0] != unit {
			t.Errorf("%q: units %v differ, want %d", text, d, unit)
		}
	}
}
