package bert_test

import (
	"testing"

	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/models/bert"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// TestParameterCountsArePublished compares the models with BertForMaskedLM, and with BertForSequenceClassification for
// two classes.
func TestParameterCountsArePublished(t *testing.T) {
	for name, want := range map[string]struct{ masked, classifier int64 }{
		"bert_base": {109_514_298, 109_483_778}, "bert_large": {335_174_458, 335_143_938},
	} {
		count := func(f func(*nn.Net, models.Tokens)) int64 {
			g, err := graph.Build(func(g *graph.Graph) {
				f(&nn.Net{Graph: g, Compute: tensor.F32}, models.Tokens{Tokens: g.Input("tokens", tensor.I32, 2, 8)})
			})
			if err != nil {
				t.Fatal(err)
			}
			return g.ParamCount()
		}
		size := bert.Family[name]
		if got := count(func(n *nn.Net, in models.Tokens) {
			bert.Build(size, bert.Options{})(n, in)
		}); got != want.masked {
			t.Errorf("%s: got %d parameters, want %d", name, got, want.masked)
		}
		if got := count(func(n *nn.Net, in models.Tokens) {
			bert.BuildClassifier(size, bert.Options{})(n, in, 2)
		}); got != want.classifier {
			t.Errorf("%s as a classifier: got %d parameters, want %d", name, got, want.classifier)
		}
	}
}
