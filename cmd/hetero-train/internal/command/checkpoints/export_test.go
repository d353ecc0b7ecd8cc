package checkpoints

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

func TestAStoppedExportLeavesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	err := writeTensors(ctx, filepath.Join(dir, "w.safetensors"),
		[]checkpoint.Tensor{{Name: "w", DType: tensor.F32, Shape: tensor.Shape{1}, Data: make([]byte, 4)}}, nil)
	if left, _ := os.ReadDir(dir); !errors.Is(err, context.Canceled) || len(left) > 0 {
		t.Errorf("got %v, and %v left behind", err, left)
	}
}
