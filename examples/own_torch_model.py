"""A torch module of one's own, trained by DP-SGD on made-up clicks: a module, an optimizer and a loader in,
batches and steps out. Losses are one per example; samples, clipping, noise and accounting are the run's."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tacit.torch import private

features = torch.randn(8000, 16)
clicks = (features[:, 0] + 0.5 * torch.randn(8000) > 0).float()
train = TensorDataset(features[:6000], clicks[:6000])

module = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
loader = DataLoader(train, batch_size=500, shuffle=True)

run = private(module, optimizer, loader, epsilon=4, delta=1e-6, epochs=5)
for values, labels in run.batches():
    run.step(nn.functional.binary_cross_entropy_with_logits(module(values), labels, reduction="none"))
print(run.statement.as_text("This module").splitlines()[0])

with torch.no_grad():
    right = ((module(features[6000:]) > 0) == clicks[6000:].bool()).float().mean()
print("more than 70% of 2,000 others are told right:", bool(right > 0.7))
