package parts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/huggingface"
	"github.com/hetero-train/hetero-train/engine/data/table"
	"github.com/hetero-train/hetero-train/engine/data/tokens"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// nameForm changes a fault if data.path has data in a format that another data set or a conversion command reads. The
// fault then names this data set or command.
func nameForm(d *config.Data, fault *data.Fault) {
	if d.Path == "" {
		return
	}
	own, ok := d.Options.(formatted)
	if !ok || own.format() == "" {
		return
	}
	reads := own.format()
	start, file := startOf(d.Path)
	isTable := huggingface.Recognise(d.Path)
	if file {
		isTable = table.Recognise(strings.NewReader(start))
	}
	wrong := func(form, advice string) {
		*fault = data.Fault{Op: "open data set", Path: d.Path, Index: -1, Advice: advice,
			Err: fmt.Errorf("%s, but data set %s reads %s", form, d.Dataset, reads)}
	}
	const tokenize = "convert the texts to tokens: hetero-train data tokenize %s --tokenizer gpt2 --output tokens; then set data.path = \"tokens\""
	switch list := slices.Contains([]string{".csv", ".jsonl", ".ndjson", ".tsv"}, filepath.Ext(d.Path)); {
	case isTable && !file && reads != tokenFormat: // keep the fault, which may apply to other files of the folder
		fault.Advice = strings.TrimPrefix(fault.Advice+
			"; the folder has Arrow or Parquet files, which data.dataset = \"huggingface\" reads", "; ")
	case isTable && reads == tokenFormat:
		wrong("the data are Arrow or Parquet files", fmt.Sprintf(tokenize, d.Path)+
			"; data.dataset = \"huggingface\" reads lists of tokens")
	case isTable:
		wrong("the data are Arrow or Parquet files", "set data.dataset = \"huggingface\"")
	case !file:
	case list && d.Samples == config.Images:
		wrong("the file is a list",
			"data.dataset = \"huggingface\" reads lists of images with the columns file_name and label")
	case reads == tokenFormat:
		line, _, _ := strings.Cut(start, "\n")
		ext := filepath.Ext(d.Path)
		if text := tokens.OtherFormat(d.Path, []byte(line), "token files"); text != "" && ext != ".jsonl" &&
			ext != ".ndjson" && ext != ".txt" {
			fault.Err = errors.New(text)
			fault.Advice = "then " + fmt.Sprintf(tokenize, "FILE.jsonl")
		} else if utf8.ValidString(strings.TrimRightFunc(start, func(r rune) bool { return r == utf8.RuneError })) {
			wrong("the file has text", fmt.Sprintf(tokenize, d.Path))
		}
	}
}

// startOf returns the first bytes of a regular file. The result ok is false for other paths.
func startOf(path string) (start string, ok bool) {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return "", false
	}
	f, _, err := regular.Open(path)
	if err != nil {
		return "", false
	}
	defer f.Close() // no error: the file was only read
	b := make([]byte, 512)
	n, _ := f.ReadAt(b, 0) // the data set has reported read errors
	return string(b[:n]), n > 0
}
