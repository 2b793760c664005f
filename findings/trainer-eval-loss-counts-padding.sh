#!/usr/bin/env bash
# Trainer's eval_loss counts the rows that pad the last batch; predictions and metrics do not
#
# Expected: transformers' Trainer.evaluate() on 2 ranks gives the eval_loss of one process. The
#   loader pads the last batches with the first rows again, so that all ranks have as many; the
#   Trainer cuts the padding off: predictions, labels and compute_metrics have each row once.
# Happens: transformers 5.24.0: the model returns one mean for its batch, padding included. The
#   Trainer repeats that mean once per row and cuts the repeats, not what went into the mean. So
#   eval_loss depends on the first rows of the set, on the number of ranks and on the batch size
#   of each rank, while accuracy in the same report does not. 8 rows, which need no padding,
#   give the same loss on 1 and 2 ranks; 9 rows do not.
# Where: transformers/trainer.py, evaluation_loop (losses.repeat(batch_size) and gather_function);
#   accelerate 1.15.0, data_loader.py (BatchSamplerShard, even_batches) makes the padding.
# Who is hurt: load_best_model_at_end and early stopping by eval_loss (the default metric), and
#   comparisons of runs on other numbers of GPUs. It is worst for small evaluation sets and
#   large batches: a last batch of one row has batch size - 1 rows of padding.
# Instead: compute the loss in compute_metrics from predictions and labels; or a set whose length
#   is a multiple of ranks x batch size.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check \
    torch==2.13.0 numpy==2.4.6 transformers==5.24.0 accelerate==1.15.0
cat >"$dir/program.py" <<'EOF'
import sys

import torch
import torch.nn.functional as F
import transformers
from torch import nn
from transformers import Trainer, TrainingArguments

transformers.logging.set_verbosity_error()
folder, ranks = sys.argv[1], int(sys.argv[2])


class Model(nn.Module):
    """A model whose loss is a plain mean over its batch; logits are known in advance."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, logits, labels):
        logits = logits * self.scale
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


def rows(count):
    """Return rows of which the first two have a loss of about 0 and the others one of about 6."""
    return [
        {"logits": torch.tensor([6.0, 0.0]), "labels": torch.tensor(0 if row < 2 else 1), "row": row}
        for row in range(count)
    ]


def collate(batch):
    return {key: torch.stack([row[key] for row in batch]) for key in ("logits", "labels")}


def metrics(found):
    logits, labels = torch.tensor(found.predictions), torch.tensor(found.label_ids)
    return {"rows": len(labels), "by_hand": F.cross_entropy(logits, labels).item()}


for count in (8, 9):
    arguments = TrainingArguments(
        folder, per_device_eval_batch_size=8 // ranks, use_cpu=True, report_to=[],
        disable_tqdm=True, remove_unused_columns=False,
    )
    trainer = Trainer(
        Model(), arguments, eval_dataset=rows(count), data_collator=collate, compute_metrics=metrics
    )
    trainer.log = lambda *_, **__: None
    found = trainer.evaluate()
    one = F.cross_entropy(*collate(rows(count)).values()).item()
    assert trainer.args.world_size == ranks
    if trainer.is_world_process_zero():
        print(
            f"transformers {transformers.__version__}  {ranks} ranks, {count} rows: "
            f"eval_loss {found['eval_loss']:.4f}  by hand {found['eval_by_hand']:.4f} "
            f"from {found['eval_rows']} rows  all rows at once {one:.4f}", flush=True,
        )
    assert found["eval_rows"] == count and abs(found["eval_by_hand"] - one) < 1e-4
    wrong = abs(found["eval_loss"] - one) > 0.1
    assert wrong == (ranks == 2 and count == 9), "changed: eval_loss"
EOF
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
for ranks in 1 2; do
    timeout 120 "$dir/venv/bin/torchrun" --standalone --nproc-per-node "$ranks" "$dir/program.py" "$dir/out" "$ranks"
done
echo "the behaviour is as described"
