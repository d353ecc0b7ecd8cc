package rendezvous

import (
	"errors"
	"net"
	"strings"
	"testing"
)

// A rank that cannot join ends the wait of the other ranks, and all of them know why.
func TestARankThatRefusesEndsTheWaitOfTheOthers(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address, token := listener.Addr().String(), newToken()
	options := func(rank int) Options {
		return Options{Rank: rank, WorldSize: 2, LocalRank: -1, Address: address, Token: token, Timeout: 10 * patience,
			Facts: []Fact{{Name: "model.name", Value: "gpt2"}, {Name: "data", Value: "text"}}}
	}
	first := options(0)
	first.Listener = listener
	waiting := joinLater(first)
	cause := errors.New("data.vocab_file: want another file\n(2 files)")
	if err := Refuse(t.Context(), options(1), cause); err != nil {
		t.Errorf("got %v, want rank 0 to receive the cause", err)
	}
	got := <-waiting
	var disagree *DisagreeError
	if !errors.As(got.err, &disagree) || disagree.Rank != 1 ||
		!strings.Contains(got.err.Error(), "cannot join: data.vocab_file: want another file; (2 files)") ||
		strings.Contains(got.err.Error(), "model.name") {
		t.Errorf("got %v, want rank 1 and the cause", got.err)
	}
	if err := Refuse(t.Context(), options(0), cause); err == nil {
		t.Error("rank 0 told itself")
	}
}
