"""accelerate: accumulation and clipping; `sum` is its mistake."""

import sys

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

MISTAKE = sys.argv[1] if len(sys.argv) > 1 else ""


def main():
    accelerator = Accelerator(gradient_accumulation_steps=2)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
    rows = TensorDataset(torch.randn(48, 6), torch.randn(48, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = DataLoader(rows, batch_size=4, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for x, y in loader:
        with accelerator.accumulate(model):
            reduction = "sum" if MISTAKE == "sum" else "mean"
            accelerator.backward(nn.functional.mse_loss(model(x), y, reduction=reduction))
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    accelerator.print("done")


main()
