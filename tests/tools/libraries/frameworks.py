"""Training loops of other libraries under DataParallel on virtual GPUs, against chunks by hand on the CPU.

Not collected by itself: CONTRIBUTING.md has the command. Nothing is downloaded.
"""

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


def test_skorch_fits_and_predicts():
    skorch = pytest.importorskip("skorch")

    def program(wrap, device):
        net = skorch.NeuralNetClassifier(
            wrap(network()),
            criterion=nn.CrossEntropyLoss,
            optimizer=torch.optim.SGD,
            optimizer__momentum=0.9,
            lr=0.1,
            max_epochs=3,
            batch_size=8,
            device=device,
            verbose=0,
        )
        inputs, targets = (part.numpy() for part in rows())
        net.fit(inputs, targets)
        return net.history[:, "train_loss"], net.predict_proba(inputs), state_of(net.module_)

    assert_agrees(program)


def test_ignite_trains_and_evaluates():
    engine = pytest.importorskip("ignite.engine")
    metrics = pytest.importorskip("ignite.metrics")

    def program(wrap, device):
        model = wrap(network().to(device))
        loss = nn.CrossEntropyLoss()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        trainer = engine.create_supervised_trainer(model, optimizer, loss, device=device)
        figures = {"accuracy": metrics.Accuracy(device=device), "loss": metrics.Loss(loss, device=device)}
        evaluator = engine.create_supervised_evaluator(model, figures, device=device)
        seen = []
        trainer.add_event_handler(
            engine.Events.EPOCH_COMPLETED, lambda _: seen.append(dict(evaluator.run(batches()).metrics))
        )
        trainer.run(batches(), max_epochs=3)
        return seen, state_of(model)

    assert_agrees(program)


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


def test_pytorch_metric_learning_trains_a_trunk_and_an_embedder():
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    miners = pytest.importorskip("pytorch_metric_learning.miners")
    trainers = pytest.importorskip("pytorch_metric_learning.trainers")

    def program(wrap, device):
        trunk, embedder = wrap(network().to(device)), wrap(nn.Linear(CLASSES, 4).double().to(device))
        optimizers = {
            f"{name}_optimizer": torch.optim.SGD(model.parameters(), lr=0.1)
            for name, model in (("trunk", trunk), ("embedder", embedder))
        }
        values = []
        trainer = trainers.MetricLossOnly(
            {"trunk": trunk, "embedder": embedder},
            optimizers,
            8,
            {"metric_loss": losses.TripletMarginLoss(margin=0.1)},
            TensorDataset(*rows()),
            {"tuple_miner": miners.MultiSimilarityMiner()},
            data_device=torch.device(device),
            dtype=torch.float64,
            end_of_iteration_hook=lambda trainer: values.append(trainer.losses["metric_loss"].item()),
            dataloader_num_workers=0,
        )
        trainer.train(num_epochs=2)
        return values, state_of(trunk), state_of(embedder)

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
