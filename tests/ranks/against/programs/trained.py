"""The Trainer of transformers: `causal` counts all ranks' tokens, `classes` multiplies a plain mean."""

import sys
import tempfile

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
)

KIND = sys.argv[1]


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        ids = torch.randint(1, 50, (10,), generator=generator)
        if KIND == "classes":
            return {"input_ids": ids, "labels": index % 2}
        return {"input_ids": ids, "labels": torch.where(ids > 5 * (index % 6), ids, -100)}


def main():
    torch.manual_seed(0)
    if KIND == "classes":
        small = BertConfig(
            vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
        )
        model = BertForSequenceClassification(small)
    else:
        model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=1, n_head=2))
    folder = tempfile.mkdtemp()
    arguments = TrainingArguments(
        folder,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        max_steps=3,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        logging_strategy="no",
    )
    Trainer(model, arguments, train_dataset=Rows()).train()


main()
