package plan

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestALongPlanSaysWhatItDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		p := startProgress("opening", func(text string) { said = append(said, text) })
		time.Sleep(firstProgress - time.Millisecond)
		p.set("compiling")
		time.Sleep(nextProgress)
		p.set("searching")
		time.Sleep(nextProgress)
		p.end()
		if want := []string{"compiling", "searching"}; !slices.Equal(said, want) {
			t.Errorf("got %q, want %q", said, want)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		p := startProgress("opening", func(text string) { t.Errorf("a short plan says %q", text) })
		time.Sleep(firstProgress - time.Millisecond)
		p.end()
	})
}
