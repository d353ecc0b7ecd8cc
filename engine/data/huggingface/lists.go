package huggingface

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/archive"
	"github.com/hetero-train/hetero-train/engine/data/filelock"
	"github.com/hetero-train/hetero-train/engine/data/table"
	"github.com/hetero-train/hetero-train/engine/data/tokenizer"
	"github.com/hetero-train/hetero-train/engine/data/tokens"
)

// TokenFiles converts files with token lists to token files (package tokens) in a folder, or finds those of an earlier
// run. It returns the paths of the token files. Each token file contains the concatenated lists of one file. All tokens
// must be below vocabulary. Data errors are *data.Fault.
//
// If left is not nil, TokenFiles leaves out damaged files and appends them to left.
func (f Found) TokenFiles(ctx context.Context, paths []string, column string, vocabulary int, dir string,
	left *[]data.LeftOut) ([]string, error) {
	var all []string
	for _, path := range paths {
		written, err := f.tokenFile(ctx, path, column, vocabulary, dir)
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			damaged := isDamage(err)
			if damaged && left != nil {
				*left = append(*left, data.LeftOut{Path: path, Whole: true, Reason: err})
				continue
			}
			fault := data.FileFault("read token lists", path, err)
			fault.Damaged = damaged
			if cache := (*archive.CacheError)(nil); errors.As(err, &cache) {
				fault.Advice = "set data.cache_dir to a writable folder with enough free space for the tokens"
			}
			return nil, fault
		}
		if written != "" {
			all = append(all, written)
		}
	}
	return all, nil
}

// tokenFile returns the path of the token file of one file; "" if it has no tokens.
func (f Found) tokenFile(ctx context.Context, path, column string, vocabulary int, dir string) (target string,
	err error) {
	t, err := f.Open(path)
	if err != nil && errors.Is(err, table.ErrFormat) {
		return "", err
	}
	if err != nil {
		return "", &damagedError{err}
	}
	defer t.Close() // read only
	field, ok := t.Field(column)
	if !ok {
		return "", fmt.Errorf("data.tokens_column: there is no column %q; the columns are %q", column, t.Names())
	}
	if field.Kind != table.Integers {
		return "", fmt.Errorf("data.tokens_column: column %q has %s, want lists of whole numbers", column, field.Kind)
	}
	if target, err = cacheName(dir, t, fmt.Sprintf("%s\x00%d", column, vocabulary), ".bin"); err != nil {
		return "", err
	}
	inCache := func(err error) error {
		if err == nil {
			return nil
		}
		return &archive.CacheError{Dir: dir, Err: err}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", inCache(err)
	}
	lock, err := filelock.Acquire(ctx, target+".lock")
	if err != nil {
		if ctx.Err() != nil {
			return "", err
		}
		return "", inCache(err)
	}
	defer lock.Release()
	if _, err := os.Stat(target); err == nil {
		return target, nil
	}
	w, err := tokens.Create(target, tokens.Header{Tokenizer: tokenizer.Unknown, Vocabulary: vocabulary,
		EndOfText: tokens.NoToken})
	if err != nil {
		return "", inCache(err)
	}
	row := 0
	var list []int32
	var own error // error of a token, not of reading the file
	add := func(v []table.Value) error {
		list = list[:0]
		for _, token := range v[0].List {
			if token < 0 || token >= int64(vocabulary) {
				return fmt.Errorf("row %d: token %d, want 0 to %d (data.vocabulary is %d)", row, token, vocabulary-1,
					vocabulary)
			}
			list = append(list, int32(token))
		}
		row++
		return inCache(w.Append(list))
	}
	err = t.Scan(ctx, []table.Column{{Path: column}}, func(v []table.Value) error {
		own = add(v)
		return own
	})
	if err != nil && own == nil {
		err = &damagedError{err}
	}
	if err != nil || w.Count() == 0 {
		return "", errors.Join(err, w.Close(), os.Remove(target+".part"))
	}
	_, err = w.Finish()
	return target, inCache(err)
}
