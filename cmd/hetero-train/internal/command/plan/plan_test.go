package plan

import "testing"

func TestSizesOfMemory(t *testing.T) {
	for text, want := range map[string]int64{"8GiB": 8 << 30, "8G": 8 << 30, "80GB": 80e9, "512MiB": 512 << 20,
		"1.5GiB": 3 << 29, "1000": 1000, "12 KiB": 12 << 10, "7B": 7} {
		if got, err := parseBytes(text); got != want || err != nil {
			t.Errorf("%q: got %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "GiB", "-1", "0", "1e40", "NaN", "8 gigabytes"} {
		if got, err := parseBytes(text); err == nil {
			t.Errorf("%q: got %d, want an error", text, got)
		}
	}
}
