package parts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
)

// openTokens opens the configured text data set.
func openTokens(ctx context.Context, cfg *config.Config, limit int, log *slog.Logger) (*Opened, error) {
	if err := keepObjects(cfg, log); err != nil {
		return nil, err
	}
	splits, err := cfg.Data.Options.(TokenDataOptions).OpenTokens(ctx, cfg, log)
	if fault := (*data.Fault)(nil); errors.As(err, &fault) {
		nameForm(&cfg.Data, fault)
		adviseDamage(&cfg.Data, fault)
		err = exit.With(exit.Data, err)
	}
	if err == nil && Pairs(&cfg.Model) && !splits.Pairs && splits.Classes == nil {
		err = exit.Usagef("model.next_sentence: the samples are not pairs of texts: want data.dataset=text, or model.next_sentence=false")
		if splits.Closer != nil {
			err = errors.Join(err, splits.Closer.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("data set %s: %w", cfg.Data.Dataset, err)
	}
	out := &Opened{Name: cfg.Data.Dataset, Tokens: &splits, Content: splits.Content}
	if err := out.checkLeftOut(cfg, log); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	if cfg.Data.Corrupt == "skip" {
		splits.Train = data.SkipSamples(splits.Train, limit, sayReplaced(log))
		if splits.Eval != nil {
			splits.Eval = data.SkipSamples(splits.Eval, limit, sayReplaced(log))
		}
	}
	return out, nil
}
