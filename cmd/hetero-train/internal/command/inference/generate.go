package inference

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/data/tokenizer"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/generate"
)

const generateLong = `Continue a text with a trained language model, and print the prompt and the continuation as it is generated.

The command stops at the end-of-text token, or after the number of tokens that --tokens states. An empty prompt starts a new
document. A prompt with more tokens than the model has positions is an error. If prompt and continuation together exceed the
positions, the model reads only the last tokens.

By default, the command uses the tokenizer of the training data. If the checkpoint does not name a tokenizer, --tokenizer selects it;
otherwise a vocabulary of 50,257 tokens selects gpt2, and one of 257 tokens selects bytes, with a warning. A tokenizer that differs
from the one of the training is an error (exit code 2).

Equal weights, flags and devices give equal texts. At --temperature 0, the command always selects the most likely token, and --seed
has no effect. CHECKPOINT and RUN select the checkpoint as for eval.`

const generateExample = `  hetero-train generate experiments/gpt2 --prompt "ROMEO:" --tokens 200
  hetero-train generate experiments/gpt2 --best --prompt "Once" --temperature 0.8 --top-k 40 --seed 7
  hetero-train generate experiments/gpt2 --prompt "Once" --samples 5 --json
  hetero-train generate imported --prompt Answer --temperature 0 --json`

// generateFlags are the flags of command generate.
type generateFlags struct {
	savedFlags
	prompt           string
	tokens, samples  int
	sampler          generate.SamplerOptions
	tokenizer, vocab string
}

// NewGenerate returns command generate, which continues a text.
func NewGenerate(a *cli.App) *cobra.Command {
	f := new(generateFlags)
	cmd := &cobra.Command{Use: "generate (CHECKPOINT | RUN)", Short: "Continue a text with a trained language model",
		Long: generateLong, Example: generateExample,
		Args: cli.Exactly("a checkpoint or a run")}
	f.addSource(cmd, a)
	flags := cmd.Flags()
	flags.BoolVar(&f.json, "json", false, "print one JSON object for each sample instead of the text")
	flags.StringVar(&f.prompt, "prompt", "", "`TEXT` to continue")
	flags.IntVar(&f.tokens, "tokens", 100, "maximum number of tokens to generate")
	flags.IntVar(&f.samples, "samples", 1,
		"number of continuations; the seeds of the samples are --seed, --seed + 1, …")
	flags.Float64Var(&f.sampler.Temperature, "temperature", 1,
		"divisor of the scores: below 1, likely tokens become more likely; 0: always the most likely token")
	flags.IntVar(&f.sampler.TopK, "top-k", 0, "sample from the `K` most likely tokens; 0: all")
	flags.Float64Var(&f.sampler.TopP, "top-p", 1,
		"sample from the most likely tokens that together have probability `P`")
	flags.Uint64Var(&f.sampler.Seed, "seed", 1, "seed of the random selection of tokens")
	flags.StringVar(&f.tokenizer, "tokenizer", "", "tokenizer: `"+strings.Join(tokenizer.Names, "|")+
		"`; default: tokenizer of the training data")
	flags.StringVar(&f.vocab, "vocab", "", "`FILE` with the vocabulary of wordpiece")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.check(); err != nil {
			return err
		}
		m, err := findSaved(a, args[0], &f.savedFlags)
		if err != nil {
			return exit.Classify(cmd.Context(), err)
		}
		defer m.run.Process.CloseAll()
		return exit.Classify(cmd.Context(), m.generate(cmd.Context(), f, a.Env.Stdout))
	}
	return cmd
}

func (f *generateFlags) check() error {
	if f.tokens < 1 {
		return exit.Usagef("--tokens: got %d, want at least 1", f.tokens)
	}
	if f.samples < 1 || f.samples > 1 && f.sampler.Temperature == 0 {
		return exit.Usagef(
			"--samples: got %d, want at least 1, and 1 at --temperature 0, because all samples would be equal",
			f.samples)
	}
	if err := f.sampler.Check(); err != nil {
		return exit.Usagef("--%w", err)
	}
	if at := strings.IndexFunc(f.prompt, func(r rune) bool { return r == utf8.RuneError }); at >= 0 &&
		!utf8.ValidString(f.prompt) {
		return exit.Usagef("--prompt: byte %d is not valid UTF-8", at)
	}
	return nil
}

// Generation is the output of generate --json.
type Generation struct {
	Checkpoint string  `json:"checkpoint"`
	Prompt     string  `json:"prompt"`
	Text       string  `json:"text"` // continuation; U+FFFD replaces invalid UTF-8
	Tokens     []int32 `json:"tokens"`
	Stopped    string  `json:"stopped"` // why generation stopped: "end-of-text" or "length"
	Tokenizer  string  `json:"tokenizer"`
	Seed       uint64  `json:"seed"`
	Device     string  `json:"device"`
	Precision  string  `json:"precision"`
}

// generate prints the prompt and its continuation.
func (m *savedModel) generate(ctx context.Context, f *generateFlags, out io.Writer) error {
	if !m.readsText() || parts.Masks(&m.run.Process.Cfg.Model) {
		return exit.Usagef("generate: %s has model %s, want a language model such as gpt2", m.checkpoint.Path,
			m.run.Process.Cfg.Model.Name)
	}
	vocabulary, positions, err := m.tableSizes()
	if err != nil {
		return err
	}
	text, err := m.tokenizer("generate", f.tokenizer, f.vocab, vocabulary)
	if err != nil {
		return err
	}
	prompt := text.NewEncoder().Append(nil, []byte(f.prompt))
	if len(prompt) > positions {
		return exit.Usagef("--prompt: got %d tokens, want at most the %d positions of the model", len(prompt),
			positions)
	}
	tokens := prompt
	if len(tokens) == 0 {
		tokens = []int32{text.EndOfText()}
	}
	for i, token := range tokens {
		if int(token) >= vocabulary {
			return exit.Usagef("--prompt: token %d is %d, want below %d, the vocabulary size of the model: set the tokenizer of the training data with --tokenizer",
				i, token, vocabulary)
		}
	}
	model, err := m.openLanguage(ctx, vocabulary, positions)
	if err != nil {
		return err
	}
	for i := range f.samples {
		sampler := f.sampler
		sampler.Seed += uint64(i)
		result := Generation{Checkpoint: m.checkpoint.Path, Prompt: f.prompt, Tokens: []int32{}, Stopped: "length",
			Tokenizer: text.Name(), Seed: sampler.Seed,
			Device: m.run.Rank.Device.Info().Name, Precision: m.run.Rank.Precision.String()}
		if !f.json {
			if _, err := io.WriteString(out, f.prompt); err != nil {
				return err
			}
		}
		if err := m.sample(ctx, f, sampler, model, text, slices.Clone(tokens), &result, out); err != nil {
			return err
		}
		if f.json {
			err = show.JSON(out, result)
		} else {
			_, err = fmt.Fprintln(out)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sample generates tokens and appends them to result. Unless f selects JSON, it writes the text of each token
// immediately.
func (m *savedModel) sample(ctx context.Context, f *generateFlags, o generate.SamplerOptions, model *generate.Model,
	text tokenizer.Tokenizer, tokens []int32, result *Generation, out io.Writer) error {
	sampler, err := generate.NewSampler(o)
	if err != nil {
		return err
	}
	var all []byte
	for len(result.Tokens) < f.tokens {
		if err := ctx.Err(); err != nil {
			return err
		}
		logits, err := model.Next(tokens)
		if errors.Is(err, generate.ErrNotCausal) {
			err = exit.With(exit.Usage, fmt.Errorf("model %s: %w", m.run.Process.Cfg.Model.Name, err))
		}
		if err != nil {
			return err
		}
		// The token table of some models has more rows than the tokenizer has tokens.
		token, err := sampler.Choose(logits[:min(len(logits), text.Vocabulary())])
		if err != nil {
			return exit.With(exit.Data, fmt.Errorf("%s: %w", m.checkpoint.Path, err))
		}
		if token == text.EndOfText() {
			result.Stopped = "end-of-text"
			break
		}
		tokens, result.Tokens = append(tokens, token), append(result.Tokens, token)
		start := len(all)
		if all, err = text.Decode(all, []int32{token}); err != nil {
			return err
		}
		if !f.json {
			if _, err := out.Write(all[start:]); err != nil {
				return err
			}
		}
	}
	result.Text = strings.ToValidUTF8(string(all), "\uFFFD")
	return nil
}

// tokenizer returns the tokenizer with the given name. If name is empty, it returns the tokenizer of the training data.
// If that is unknown, it returns the tokenizer with the given size of the vocabulary.
func (m *savedModel) tokenizer(command, name, vocab string, vocabulary int) (tokenizer.Tokenizer, error) {
	if m.trained.Tokenizer == tokenizer.Other {
		return nil, exit.Usagef("%s: %s was trained with %s, which this program cannot compute, so its tokens would mean other texts: use the library transformers with the files of that tokenizer (checkpoint export --format hf)",
			command, m.checkpoint.Path, m.trained.Encoding())
	}
	name = cmp.Or(name, m.trained.Tokenizer)
	if name == "" {
		for _, t := range []tokenizer.Tokenizer{tokenizer.GPT2(), tokenizer.Bytes()} {
			if t.Vocabulary() == vocabulary {
				name = t.Name()
				m.run.Process.Opts.Log.Warn(fmt.Sprintf("%s does not name its tokenizer: the size of its vocabulary, %d tokens, selects %s, but nothing proves that this is the tokenizer of the training",
					m.checkpoint.Path, vocabulary, name))
			}
		}
	}
	advice, source := ": set --tokenizer", "--tokenizer"
	if command != "generate" { // command generate has no such flag
		advice, source = "", command+": tokenizer of the training data"
	}
	if name == "" {
		return nil, exit.Usagef("%s: %s does not name its tokenizer, and no built-in tokenizer has %d tokens%s",
			command, m.checkpoint.Path, vocabulary, advice)
	}
	t, err := tokenizer.New(name, vocab)
	if err != nil {
		return nil, exit.With(exit.Usage, fmt.Errorf("%s: %w", source, err))
	}
	return t, m.trained.CheckTokenizer(source, t, m.checkpoint.Path)
}

// openLanguage opens the device, builds the language model and loads its weights.
func (m *savedModel) openLanguage(ctx context.Context, vocabulary, positions int) (*generate.Model, error) {
	if err := m.openDevice(ctx); err != nil {
		return nil, err
	}
	build, err := parts.BuildLanguage(&m.run.Process.Cfg.Model, vocabulary, positions)
	if err != nil {
		return nil, err
	}
	_, builtin := m.run.Process.Cfg.Model.Options.(parts.Transformer)
	warn := func(reason string) {
		m.run.Process.Opts.Log.Warn("each token costs a pass over the whole text", "model",
			m.run.Process.Cfg.Model.Name, "reason", reason)
	}
	model, err := generate.Open(m.run.Rank.Device, generate.Options{Model: build, Vocabulary: vocabulary,
		Positions: positions, Compute: m.run.Rank.Precision, Own: !builtin, Warn: warn})
	if err != nil {
		err = fmt.Errorf("model %s: %w", m.run.Process.Cfg.Model.Name, err)
		if errors.Is(err, device.ErrUnsupported) {
			err = exit.With(exit.Device, err)
		}
		return nil, err
	}
	m.run.Process.Later(model.Close)
	read := m.checkpoint.Model.ReadInto
	if m.averaged {
		read = m.checkpoint.ReadAverage
	}
	return model, model.Load(m.checkpoint.Model, read)
}
