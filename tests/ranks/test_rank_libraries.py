"""Training libraries run unmodified on ranks: each sample is reported once, and no mistake is named."""

import json
import subprocess
import sys

import pytest
from test_programs import OF_LIBRARIES, are_named_with_their_lines, nothing_is_reported_of_their_twins

_ACCELERATE = """
import torch
from accelerate import Accelerator
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(gradient_accumulation_steps=2)
torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 6), torch.randint(0, 3, (64,)))
model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, 8, shuffle=True))
for _ in range(2):
    for rows, targets in loader:
        with accelerator.accumulate(model):
            loss = cross_entropy(model(rows), targets)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
assert accelerator.num_processes == 2 and accelerator.gather(loss.detach().view(1)).shape == (2,)
accelerator.save_state("state")
accelerator.wait_for_everyone()  # rank 0 writes, and all ranks read
accelerator.load_state("state")
"""
_TRAINER = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2))
data = [{"input_ids": ids, "labels": ids} for ids in torch.randint(0, 64, (32, 16))]
arguments = TrainingArguments(
    "out", per_device_train_batch_size=4, num_train_epochs=1, report_to=[], save_strategy="epoch", **OPTIONS
)
trained = Trainer(model=model, args=arguments, train_dataset=data).train()
assert (trained.global_step, arguments.world_size) == (4, 2)
"""
_TABLES = """
from datasets import Dataset
from dpdemo.ranks.observe.datasets import contents, fingerprint

def seen(data):
    return contents(data), fingerprint(data)

data = Dataset.from_dict({"x": list(range(1000))})
made = [data.map(lambda row: row, new_fingerprint=f"of-rank-{rank}") for rank in range(2)]
assert made[0]._fingerprint != made[1]._fingerprint
assert seen(made[0]) == seen(made[1])
parts = data.shard(2, 0), data.shard(2, 1), data.shard(2, 1, contiguous=False), data.select([])
assert len({seen(part) for part in parts}) == 4
"""
_SHARDED = '{"bf16": True, "fsdp": True, "fsdp_config": {"version": 2}}'
_LIGHTNING = """
import lightning
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 3)

    def training_step(self, batch, index):
        rows, targets = batch
        loss = cross_entropy(self.layer(rows), targets)
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())

torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 6), torch.randint(0, 3, (64,)))
trainer = lightning.Trainer(
    accelerator="gpu", devices=2, strategy=STRATEGY, max_epochs=1, logger=False, enable_progress_bar=False
)
trainer.fit(Model(), DataLoader(data, 8, shuffle=True))
assert (trainer.global_step, trainer.world_size) == (4, 2)
"""
_DEEPSPEED = """
import deepspeed
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 6), torch.randint(0, 3, (64,)))
model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
config = {
    "train_micro_batch_size_per_gpu": 8,
    "zero_optimization": {"stage": STAGE},
    "optimizer": {"type": "Adam", "params": {"lr": 0.01, "torch_adam": True}},
}
engine, _, loader, _ = deepspeed.initialize(
    model=model, model_parameters=model.parameters(), training_data=data, config=config
)
for rows, targets in loader:
    loss = cross_entropy(engine(rows.to(engine.device)), targets.to(engine.device))
    engine.backward(loss)
    engine.step()
assert (engine.global_steps, engine.world_size) == (4, 2)
"""
_PROGRAMS = {
    "accelerate": ("accelerate", _ACCELERATE),
    "Trainer": ("transformers", _TRAINER.replace("OPTIONS", "{}")),
    "Trainer with FSDP": ("transformers", _TRAINER.replace("OPTIONS", _SHARDED)),
    "Lightning": ("lightning", _LIGHTNING.replace("STRATEGY", "'ddp'")),
    "Lightning with FSDP": ("lightning", _LIGHTNING.replace("STRATEGY", "'fsdp'")),
    "ZeRO 1": ("deepspeed", _DEEPSPEED.replace("STAGE", "1")),
    "ZeRO 3": ("deepspeed", _DEEPSPEED.replace("STAGE", "3")),
}
_COMPARED = {"accelerate", "Trainer", "Lightning", "ZeRO 1"}


@pytest.mark.slow
@pytest.mark.parametrize("name", _PROGRAMS)
def test_a_library_trains_on_ranks(tmp_path, monkeypatch, name):
    library, program = _PROGRAMS[name]
    pytest.importorskip(library, reason=f"{library} is not installed")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "train.py").write_text(program, "utf-8")
    command = [sys.executable, "-m", "dpdemo", "exec", "--ranks", "2", "--check", "--report", "report.json"]
    command += ["train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert report["mistakes"] == []
    assert report["comparison"]["verdict"] in (["equal"] if name in _COMPARED else ["equal", "not checked"])
    assert [rank["exit_code"] for rank in report["ranks"]] == [0, 0]
    models = [rank["models"] for rank in report["ranks"]]
    assert all(model["steps"] >= 4 for rank in models for model in rank)
    assert all(models) == (library != "deepspeed")  # its engine averages by itself
    assert [(coverage["num_repeated"], coverage["num_left_out"]) for coverage in report["coverage"]] == [
        (0, 0)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_LIBRARIES)
def test_a_mistake_with_a_library_is_named_and_its_twin_has_none(tmp_path, name):
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    are_named_with_their_lines([name], tmp_path)
    nothing_is_reported_of_their_twins([name], tmp_path)


def test_tables_of_other_names_and_the_same_rows_are_the_same_data_set(tmp_path):
    pytest.importorskip("datasets", reason="datasets is not installed")
    done = subprocess.run(
        [sys.executable, "-c", _TABLES],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
