"""Training loops of other libraries under DataParallel on virtual GPUs, against chunks by hand on the CPU.

Not collected by itself: CONTRIBUTING.md has the command. Nothing is downloaded.
"""

from __future__ import annotations

import contextlib
import copy

import pytest
import torch
from byhand import assert_agrees, state_of
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

pytestmark = pytest.mark.filterwarnings("default")  # what the libraries warn of is not ours
ROWS, WIDTH, CLASSES = 40, 6, 3


def network(dtype=torch.float64):
    torch.manual_seed(1)
    layers = nn.Linear(WIDTH, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, CLASSES)
    return nn.Sequential(*layers).to(dtype)


def rows(dtype=torch.float64):
    torch.manual_seed(2)
    return torch.randn(ROWS, WIDTH, dtype=dtype), torch.randint(CLASSES, (ROWS,))


def batches(size=8, **options):
    return DataLoader(TensorDataset(*rows()), batch_size=size, **options)


def test_lightning_fits_a_module_that_holds_a_parallel_one(tmp_path):
    lightning = pytest.importorskip("lightning")

    class Task(lightning.LightningModule):
        def __init__(self, net):
            super().__init__()
            self.net = net
            self.losses = []

        def training_step(self, batch, _):
            inputs, targets = batch
            loss = nn.functional.cross_entropy(self.net(inputs), targets)
            self.log("loss", loss, on_epoch=True)
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

    def program(wrap, device):
        task = Task(wrap(network()))
        trainer = lightning.Trainer(
            accelerator={"cuda": "gpu"}.get(device, device),
            devices=1,
            max_epochs=2,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=tmp_path,
        )
        trainer.fit(task, batches())
        return task.losses, trainer.callback_metrics["loss_epoch"].cpu(), state_of(task.net)

    assert_agrees(program)


def test_fastai_fits_one_cycle():
    fastai = pytest.importorskip("fastai.basics")
    pytest.importorskip("fastai.distributed")
    pytest.importorskip("fastai.callback.schedule")

    def program(wrap, device):
        loaders = fastai.DataLoaders(
            fastai.DataLoader(TensorDataset(*rows(torch.float32)), bs=8),
            fastai.DataLoader(TensorDataset(*rows(torch.float32)), bs=8),
            device=torch.device(device),
        )
        is_parallel, model = device == "cuda", network(torch.float32)  # it sums its losses in float32
        learner = fastai.Learner(
            loaders,
            model if is_parallel else wrap(model),
            loss_func=nn.CrossEntropyLoss(),
            metrics=fastai.accuracy,
            opt_func=fastai.SGD,
        )
        context = learner.parallel_ctx() if is_parallel else contextlib.nullcontext()
        with context, learner.no_bar(), learner.no_logging():
            fastai.Learner.fit_one_cycle(learner, 2, 0.1)
        return [list(row) for row in learner.recorder.values], state_of(learner.model)

    assert_agrees(program)


def test_poutyne_trains_on_a_list_of_gpus():
    poutyne = pytest.importorskip("poutyne")

    def program(wrap, device):
        net = network()
        model = poutyne.Model(
            net if device == "cuda" else wrap(net),
            torch.optim.SGD(net.parameters(), lr=0.1),
            "cross_entropy",
            batch_metrics=["accuracy"],
            device="all" if device == "cuda" else "cpu",
        )
        history = model.fit_generator(
            batches(), batches(), epochs=2, progress_options={"verbose": False}, verbose=False
        )
        figures = [{name: value for name, value in epoch.items() if "time" not in name} for epoch in history]
        return figures, state_of(copy.deepcopy(net).cpu())

    assert_agrees(program)
