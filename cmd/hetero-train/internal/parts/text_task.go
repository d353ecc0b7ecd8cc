package parts

import (
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/engine/task/language"
)

// TextTask configures the learning task for a text data set.
type TextTask struct {
	Vocabulary, Positions int     // minimum numbers of rows of the model's token and position tables
	Classes               int     // number of classes of labelled texts; 0: the task is to predict tokens
	LabelSmoothing        float64 // label smoothing for labelled texts
}

// Task returns the learning task with the configured model.
func (t *TokenSplits) Task(m *config.Model, o TextTask) (task.Task, error) {
	if o.Classes > 0 {
		model, err := BuildTexts(m, o.Vocabulary, o.Positions)
		return language.Classify{Model: model, Classes: o.Classes, Length: t.Length, LabelSmoothing: o.LabelSmoothing,
			Grouped: t.Shorter != nil}, err
	}
	model, err := BuildLanguage(m, o.Vocabulary, o.Positions)
	learns := t.predict()
	learns.Model = model
	return learns, err
}

// Report returns the format in which the results of the task are shown.
func (t *TokenSplits) Report() task.Report {
	if t.Classes != nil {
		return language.Classify{Classes: len(t.Classes), Length: t.Length, Grouped: t.Shorter != nil}.Report()
	}
	return t.predict().Report()
}

// predict returns the task of predicting tokens, without the model.
func (t *TokenSplits) predict() language.Predict {
	return language.Predict{Length: t.Length, Padded: t.Masked, Masked: t.Masked, NextSentence: t.Pairs,
		Grouped: t.Shorter != nil, Counted: t.Counted}
}
