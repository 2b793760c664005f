"""Hold `dpdemo memory` against a real GPU: predicted ÷ measured (run this file there).

    python tests/gpus/memory_against_cuda.py [--card H100] [TARGET...]

Models of libraries, and those of `cuda_programs.py`, make three steps for real with the batch that `dpdemo
memory` gives them; the third is measured: `torch.cuda.max_memory_allocated` and `max_memory_reserved`. The
predictions are made in processes that see no GPU. Libraries that are not installed are listed.
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from dpdemo.config.load import resolve
from dpdemo.memory import predict_memory
from dpdemo.memory.case import batches_of
from dpdemo.models.losses import make_loss
from dpdemo.results.memorydata import Training

BATCH_SIZE = 16
"""Of a model of a library; the others bring their batch."""
PROGRAMS = Path(__file__).with_name("cuda_programs.py")
OWN = [f"{PROGRAMS}:{name}" for name in ("mlp", "cnn", "lstm", "encoder", "decoder")]
LIBRARIES = [
    *(f"torchvision:{name}" for name in ("resnet18", "resnet50", "resnet101", "vgg16", "densenet121")),
    *(f"torchvision:{name}" for name in ("mobilenet_v2", "efficientnet_b0", "convnext_tiny", "swin_t")),
    *(f"torchvision:{name}" for name in ("vit_b_16", "regnet_y_400mf", "shufflenet_v2_x1_0", "alexnet")),
    *(f"timm:{name}" for name in ("deit_small_patch16_224", "mixer_b16_224", "res2net50_26w_4s")),
    *(f"transformers:{name}" for name in ("gpt2", "bert-base-uncased", "roberta-base", "t5-small")),
    *(
        f"transformers:{name}"
        for name in ("facebook/opt-125m", "facebook/bart-base", "EleutherAI/pythia-160m")
    ),
    *(f"transformers:{name}" for name in ("Qwen/Qwen2.5-0.5B", "HuggingFaceTB/SmolLM2-135M")),
    *(f"transformers:{name}" for name in ("facebook/wav2vec2-base", "openai/whisper-tiny", "vit", "clip")),
]


OPTIMIZERS = {"sgd": partial(torch.optim.SGD, lr=0.1), "adamw": torch.optim.AdamW}


class Bytes(NamedTuple):
    """Peak memory of a step."""

    allocated: int
    reserved: int


class Case(NamedTuple):
    """A model, its optimizer, and whether it runs under autocast."""

    target: str
    optimizer: str
    amp: bool

    @property
    def keys(self) -> dict[str, Any]:
        """The keys of a config that name the model on one GPU."""
        size = {} if PROGRAMS.name in self.target else {"batch_size": BATCH_SIZE}
        return {"model": self.target, "gpus": 1, **size}


CASES = [
    *(Case(target, optimizer, amp) for target in OWN for optimizer in OPTIMIZERS for amp in (False, True)),
    *(Case(target, "adamw", amp) for target in LIBRARIES for amp in (False, True)),
]


def predicted(case: Case, card: str) -> Bytes:
    """Predict a step."""
    training = Training(case.optimizer, amp=case.amp)
    report = predict_memory(training=training, gpu=card, **case.keys)
    (gpu,) = report.gpus
    return Bytes(gpu.peak_bytes, gpu.reserved_bytes)


def measured(case: Case) -> Bytes:
    """Make three steps on the real GPU, and measure the last."""
    gc.collect()
    torch.cuda.empty_cache()
    config = resolve(None, case.keys)
    batches = batches_of(config, None, numbers=True)
    model, _ = batches.load_model(case.target, config)
    model.cuda().train()
    optimizer = OPTIMIZERS[case.optimizer](model.parameters())
    loss_of = make_loss("auto")
    for _ in range(3):
        torch.cuda.reset_peak_memory_stats()
        optimizer.zero_grad()
        args, kwargs = batches.make(batches.batch_size, torch.device("cuda", 0))
        with torch.autocast("cuda", enabled=case.amp):
            output = model(*args, **kwargs)
            loss = loss_of(output)
        loss.backward()
        optimizer.step()
        del args, kwargs, output, loss
    torch.cuda.synchronize()
    return Bytes(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())


def predicted_elsewhere(case: Case, card: str) -> Bytes | str:
    """Predict in a process that sees no GPU; what it says where it fails."""
    command = [sys.executable, __file__, "--predict", "--card", card, "--optimizer", case.optimizer]
    command += ["--amp"] if case.amp else []
    done = subprocess.run(
        [*command, case.target], env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
    return Bytes(*json.loads(done.stdout.splitlines()[-1]))


def main() -> int:
    """Print the table, a row as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--card", default="H100", help="what this machine's GPU is called in --gpu")
    parser.add_argument("--predict", action="store_true", help="predict one, and print the bytes alone")
    parser.add_argument("--amp", action="store_true", help="with --predict: under autocast")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw", help="with --predict")
    parser.add_argument("targets", nargs="*", help="models; all of the table if none is named")
    options = parser.parse_args()
    if options.predict:
        print(json.dumps(predicted(Case(options.targets[0], options.optimizer, options.amp), options.card)))
        return 0
    if not torch.cuda.is_available():
        print("expected a CUDA GPU, got none", file=sys.stderr)
        return 2
    print(f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}, batch size {BATCH_SIZE}")
    columns = f"{'model':<40}{'optimizer':<11}{'dtype':<9}{'predicted':>10}{'measured':>10} MiB"
    print(f"{columns}{'ratio':>7}{'reserved':>10}")
    cases = [case for case in CASES if not options.targets or case.target in options.targets]
    ratios = []
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(predicted_elsewhere, case, options.card) for case in cases]
        for case, found in zip(cases, waiting, strict=True):
            ratios += row(case, found.result())
    if ratios:
        errors = [abs(ratio - 1) for ratio in ratios]
        print(
            f"{len(ratios)} measured: median error {statistics.median(errors):.1%}, worst {max(errors):.1%}"
        )
    return 0


def row(case: Case, found: Bytes | str) -> list[float]:
    """Measure a case, and print its row; return the ratio of its peaks, if there is one."""
    name = case.target.removeprefix(f"{PROGRAMS.parent}/")
    named = f"{name:<40}{case.optimizer:<11}{'autocast' if case.amp else 'float32':<9}"
    try:
        real = measured(case)
    except Exception as error:
        print(f"{named} real: {type(error).__name__} {str(error).splitlines()[0][:100]}; predicted: {found}")
        return []
    if isinstance(found, str):
        print(f"{named} predicted: {found[:120]}; measured {real.allocated / 2**20:.1f} MiB")
        return []
    sizes = f"{found.allocated / 2**20:>10.1f}{real.allocated / 2**20:>10.1f}"
    ratio = found.allocated / real.allocated
    print(f"{named}{sizes}{ratio:>11.3f}{found.reserved / real.reserved:>10.3f}")
    return [ratio]


if __name__ == "__main__":
    sys.exit(main())
