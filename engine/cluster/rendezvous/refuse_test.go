package rendezvous

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

// If a rank cannot join, the other ranks must stop waiting, and all ranks must report the cause.
func TestARankThatRefusesEndsTheWaitOfTheOthers(t *testing.T) {
	loopback := overLoopback(t, 3, plainListen)
	options := func(rank int) Options {
		o := loopback(rank)
		o.Timeout = 10 * patience
		o.Facts = []Fact{{Name: "model.name", Value: "gpt2"}, {Name: "data", Value: "text"}}
		return o
	}
	waiting := joinLater(options(0))
	second := joinLater(options(2))
	cause := errors.New("data.vocab_file: want another file\n(2 files)")
	refusing := options(1)
	refusing.WorldSize = 4 // the error must state the cause of the refusal, not this difference
	if err := Refuse(t.Context(), refusing, RefusedData, cause); err != nil {
		t.Errorf("got %v, want rank 0 to receive the cause", err)
	}
	for _, got := range []joined{<-waiting, <-second} {
		var disagree *DisagreeError
		if !errors.As(got.err, &disagree) || disagree.Rank != 1 || disagree.Refusal() != RefusedData ||
			!strings.Contains(got.err.Error(), "cannot join: data.vocab_file: want another file; (2 files)") ||
			strings.Contains(got.err.Error(), "model.name") || strings.Contains(got.err.Error(), "world size") {
			t.Errorf("got %v, want rank 1 and the cause", got.err)
		}
	}
	if err := Refuse(t.Context(), options(0), RefusedData, cause); err == nil {
		t.Error("rank 0 told itself")
	}
}

// A peer can send any text as the cause of its refusal, so rank 0 must limit this text. A refusal that belongs to
// another start must not end this start.
func TestTheCauseOfAPeerIsLimited(t *testing.T) {
	own := registration{worldSize: 2, facts: []Fact{{Name: "model.name", Value: "gpt2"}}}
	peer := registration{worldSize: 3, facts: []Fact{{Name: string(RefusedSettings),
		Value: "a\r\nb\nc" + strings.Repeat("é\n", 1<<18)}}}
	found := compare(peer, own)
	if len(found) != 1 || found[0].Name != string(RefusedSettings) {
		t.Fatalf("got %v, want the refusal alone", found)
	}
	if text := found[0].Value; !strings.HasPrefix(text, "a; b; cé; é; ") || len(text) > maxRefusal ||
		len(text) < maxRefusal-4 || strings.ContainsAny(text, "\r\n") || !utf8.ValidString(text) {
		t.Errorf("got %d bytes %q", len(text), text)
	}
	peer.generation = 1
	if found = compare(peer, own); len(found) != 1 || found[0].Name != generationName {
		t.Errorf("another start: got %v, want the generation", found)
	}
}
