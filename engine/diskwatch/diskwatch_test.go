package diskwatch

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestAnOperationThatDoesNotReturnIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(Watch)
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		var said []string
		go w.Report(ctx, Reports{
			Silent:  func(what string, age time.Duration) { said = append(said, fmt.Sprint(what, " silent ", age)) },
			Answers: func(what string, age time.Duration) { said = append(said, fmt.Sprint(what, " answers ", age)) },
		})
		quick := w.Begin("quick")
		time.Sleep(2100 * time.Millisecond) // ends between two ticks
		quick()
		slow := w.Begin("slow")
		time.Sleep(7 * time.Second)
		if what, age := w.Oldest(); what != "slow" || age < 6*time.Second || age > 8*time.Second {
			t.Errorf("got %q, %v, want slow for about 7 s", what, age)
		}
		slow()
		time.Sleep(time.Second)
		if what, _ := w.Oldest(); what != "" {
			t.Errorf("got %q after its end", what)
		}
		synctest.Wait()
		if want := []string{"slow silent 3s", "slow silent 6s", "slow answers 7s"}; !slices.Equal(said, want) {
			t.Errorf("got %q, want %q", said, want)
		}
	})
}

// If the process was paused for a minute, it has not waited for its disk for a minute.
func TestAPauseOfTheProcessIsNoSilence(t *testing.T) {
	w := new(Watch)
	defer w.Begin("file")()
	w.grow(min(time.Minute, longestGap))
	if _, age := w.Oldest(); age > longestGap {
		t.Errorf("got an age of %v after a pause", age)
	}
}
