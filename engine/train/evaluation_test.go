package train

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestAnEvaluationOfSeveralLabelsHasNoTop5(t *testing.T) {
	for _, e := range []Evaluation{{Step: 3, Loss: 1, Top1: 0.5}, {Step: 3, Loss: 1, Top1: 0.5, Top5: 0.75},
		{Step: 3, Loss: 1, Top1: 0.5, F1: 0.25, MultiLabel: true}} {
		text, err := json.Marshal(e)
		if err != nil || strings.Contains(string(text), `"top5"`) == e.MultiLabel {
			t.Errorf("%+v: %s, %v", e, text, err)
		}
		var again Evaluation
		if err := json.Unmarshal(text, &again); err != nil || !reflect.DeepEqual(again, e) {
			t.Errorf("%s: got %+v, want %+v, %v", text, again, e, err)
		}
	}
}
