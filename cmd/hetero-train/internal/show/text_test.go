package show

import "testing"

func TestForeignNames(t *testing.T) {
	for name, want := range map[string]string{
		"conv1.weight": "conv1.weight", "Größe 猫 😀": "Größe 猫 😀", "": `""`, "a\nb": `"a\nb"`, "\x1b[2J": `"\x1b[2J"`,
		`"quoted"`: `"\"quoted\""`, "\xff": `"\xff"`, "a\u202eb": `"a\u202eb"`,
	} {
		if got := Foreign(name); got != want {
			t.Errorf("foreign(%q) = %s, want %s", name, got, want)
		}
	}
}
