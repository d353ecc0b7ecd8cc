package rendezvous

import (
	"errors"
	"net"
	"strings"
	"testing"
	"unicode/utf8"
)

// A rank that cannot join ends the wait of the other ranks, and all of them know why.
func TestARankThatRefusesEndsTheWaitOfTheOthers(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address, token := listener.Addr().String(), newToken()
	options := func(rank int) Options {
		return Options{Rank: rank, WorldSize: 3, LocalRank: -1, Address: address, Token: token, Timeout: 10 * patience,
			Facts: []Fact{{Name: "model.name", Value: "gpt2"}, {Name: "data", Value: "text"}}}
	}
	first := options(0)
	first.Listener = listener
	waiting := joinLater(first)
	second := joinLater(options(2))
	cause := errors.New("data.vocab_file: want another file\n(2 files)")
	refusing := options(1)
	refusing.WorldSize = 4 // the cause is more important than another difference
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

// Rank 0 limits the cause, because a peer may send any text. A refusal of another start does not concern this one.
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
