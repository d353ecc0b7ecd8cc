"""simple_cnn of engine/models, in PyTorch: the same layers under the same parameter names."""

import torch
from torch import nn


class Block(nn.Module):
    """Two convolutions of 3x3 with BatchNorm and ReLU, then half the size."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = torch.relu(self.bn2(self.conv2(x)))
        return nn.functional.max_pool2d(x, 2)


class SimpleCNN(nn.Module):
    """A block for each entry of channels, named block0, block1 …; then the mean over the image, dropout, fc."""

    def __init__(self, num_classes=10, channels=(32, 64, 128), dropout=0.0):
        super().__init__()
        inputs = 3
        for i, outputs in enumerate(channels):
            self.add_module(f"block{i}", Block(inputs, outputs))
            inputs = outputs
        self.blocks = len(channels)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(inputs, num_classes)

    def forward(self, x):
        for i in range(self.blocks):
            x = getattr(self, f"block{i}")(x)
        return self.fc(self.dropout(x.mean((2, 3))))
