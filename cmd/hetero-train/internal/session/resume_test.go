package session

import (
	"os"
	"testing"

	"github.com/hetero-train/hetero-train/engine/config"
)

func TestCommandThatGoesOn(t *testing.T) {
	for _, c := range []struct {
		resume string
		args   []string
		want   string // expected command line, without the name of the program
	}{
		{"auto", []string{"train", "-c", "my run.toml", "--set", "model.channels=[4]"},
			"train -c 'my run.toml' --set 'model.channels=[4]'"},
		{"auto", []string{"-c", "it's.toml"}, `-c 'it'\''s.toml'`},
		{"none", []string{"train", "--resume", "none", "--lr", "0.1"}, "train --lr 0.1 --resume auto"},
		{"none", []string{"train", "--resume=none", "--set", "train.resume=none", "--set=train.resume=none"},
			"train --resume auto"},
		{"old/run", []string{"-c", "a.toml"}, "-c a.toml --resume auto"},
	} {
		cfg := &config.Config{}
		cfg.Train.Resume = c.resume
		o := Options{Env: Environment{Environ: []string{SupervisedVariable + "=./hetero-train"}}, Args: c.args}
		if got, want := o.again(cfg), "./hetero-train "+c.want; got != want {
			t.Errorf("%q: got  %s\nwant %s", c.args, got, want)
		}
	}
	if got := (Options{Args: []string{"train"}}).again(
		&config.Config{Train: config.Train{Resume: "auto"}}); got != quoted(os.Args[0])+" train" {
		t.Errorf("got %s", got)
	}
}
