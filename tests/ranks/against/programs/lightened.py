"""Lightning's Trainer under ddp."""

import sys

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

MISTAKE = sys.argv[1] if len(sys.argv) > 1 else ""


class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1))

    def training_step(self, batch, _):
        x, y = batch
        return nn.functional.mse_loss(self.net(x), y, reduction="sum" if MISTAKE == "sum" else "mean")

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def main():
    torch.manual_seed(0)
    rows = TensorDataset(torch.randn(48, 6), torch.randn(48, 1))
    trainer = Trainer(
        accelerator="gpu",
        devices="auto",
        strategy="ddp",
        max_steps=4,
        gradient_clip_val=0.5,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Net(), DataLoader(rows, batch_size=4, shuffle=True))


main()
