package logs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
)

type credentials struct{ User, Pass string }

type lazy struct{ text string }

func (l lazy) LogValue() slog.Value { return slog.StringValue(l.text) }

func TestRedactorHidesSecretsWhereverTheyStand(t *testing.T) {
	const secret = "s3cr3t-value"
	for name, use := range map[string]func(log *slog.Logger){
		"message":          func(log *slog.Logger) { log.Info("got " + secret) },
		"attribute":        func(log *slog.Logger) { log.Info("x", "url", "http://host/?t="+secret) },
		"error":            func(log *slog.Logger) { log.Info("x", "err", fmt.Errorf("dial: %w", errors.New(secret))) },
		"struct":           func(log *slog.Logger) { log.Info("x", "user", credentials{"me", secret}) },
		"pointer":          func(log *slog.Logger) { log.Info("x", "user", &credentials{"me", secret}) },
		"list":             func(log *slog.Logger) { log.Info("x", "args", []string{"--token", secret}) },
		"map":              func(log *slog.Logger) { log.Info("x", "env", map[string]string{"A": secret}) },
		"group":            func(log *slog.Logger) { log.Info("x", slog.Group("a", slog.Group("b", "c", secret))) },
		"lazy value":       func(log *slog.Logger) { log.Info("x", "v", lazy{secret}) },
		"logger's own":     func(log *slog.Logger) { log.With("v", secret).Info("x") },
		"logger's group":   func(log *slog.Logger) { log.WithGroup("g").With("v", secret).Info("x", "w", secret) },
		"name of the key":  func(log *slog.Logger) { log.Info("x", "token", "another one: s3cr3t") },
		"name in a group":  func(log *slog.Logger) { log.Info("x", slog.Group("aws", "secret_access_key", "s3cr3t")) },
		"name with dashes": func(log *slog.Logger) { log.Info("x", "X-Api-Key", "s3cr3t") },
	} {
		var b bytes.Buffer
		log, err := New(&b, NewScreen(&b),
			Options{Level: "info", Format: FormatJSON, Hide: SecretsIn([]string{"HETERO_TOKEN=" + secret})})
		if err != nil {
			t.Fatal(err)
		}
		use(log)
		if got := b.String(); strings.Contains(got, "s3cr3t") || !strings.Contains(got, redacted) {
			t.Errorf("%s: got %s", name, got)
		}
	}
}

func TestRedactorLeavesTheRestAlone(t *testing.T) {
	var b bytes.Buffer
	log, err := New(&b, NewScreen(io.Discard), Options{Level: "info", Format: FormatJSON,
		Hide: SecretsIn([]string{"HETERO_TOKEN=s3cr3t-value", "HOME=/root"})})
	if err != nil {
		t.Fatal(err)
	}
	log.Debug("hidden by its level")
	log.With("rank", 0).WithGroup("step").Info("done", "tokens", 512, "token_file", "/root/token", "loss", 2.5, "list",
		[]int{1, 2}, "key", "data.path")
	want := `"msg":"done","rank":0,"step":{"tokens":512,"token_file":"/root/token","loss":2.5,"list":[1,2],"key":"data.path"}}` +
		"\n"
	if got := b.String(); !strings.HasSuffix(got, want) || strings.Count(got, "\n") != 1 {
		t.Errorf("got  %swant …%s", got, want)
	}
}

func TestSecretsOfEnvironment(t *testing.T) {
	got := SecretsIn([]string{
		"HETERO_TOKEN=abcdef", "HETERO_TOKEN_FILE=/run/token", "MLFLOW_TRACKING_PASSWORD=longer-password",
		"AWS_SECRET_ACCESS_KEY=akey-akey",
		"SECRET=1", "PATH=/usr/bin:/bin", "TOKENIZERS_PARALLELISM=false", "EMPTY_TOKEN=", "no equals sign",
	})
	if text := strings.Join(got, " "); text != "longer-password akey-akey abcdef" {
		t.Errorf("got %q, want the three secrets, the longest first", text)
	}
	if got := Secrets([]string{"abcdef", "abc"}).Text("abcdef abc ab"); got != "[redacted] [redacted] ab" {
		t.Errorf("a secret inside another: got %q", got)
	}
}
