"""Programs with Hugging Face's Trainer under `exec --check`: no false finding, and fixes that work.

Not collected by itself: CONTRIBUTING.md has the command. Nothing is downloaded.
"""

import pytest
import torch
from sentence_pairs import rated_pairs, save_reader, sentence_model

from dpdemo.programs.callcheck import CallCheck
from dpdemo.virtual import virtual_gpus

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("default")  # what the library warns of is not ours
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
VOCABULARY = 50


def words(num, *, length=None, labels=lambda ids: ids):
    """`num` texts, of lengths between 5 and 11 where `length` does not give one."""
    torch.manual_seed(2)
    texts = [torch.randint(5, VOCABULARY, (length or 5 + row % 7,)) for row in range(num)]
    return [
        {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels(ids)} for ids in texts
    ]


def padded(rows):
    def join(name, filler):
        return torch.nn.utils.rnn.pad_sequence([row[name] for row in rows], True, filler)

    return {"input_ids": join("input_ids", 0), "attention_mask": join("attention_mask", 0)} | {
        "labels": join("labels", -100)
    }


def classifier():
    config = transformers.BertConfig(vocab_size=VOCABULARY, num_labels=3, **SMALL)
    return transformers.BertForSequenceClassification(config), words(
        22, length=6, labels=lambda ids: ids[0] % 3
    )


def causal(name, **more):
    config = getattr(transformers, f"{name}Config")(vocab_size=VOCABULARY, **more)
    head = "LMHeadModel" if name == "GPT2" else "ForCausalLM"
    return getattr(transformers, f"{name}{head}")(config), words(22)


def llama():
    return causal("Llama", num_key_value_heads=1, **SMALL)


def gpt2():
    return causal("GPT2", n_embd=16, n_layer=2, n_head=2, n_positions=32)


def translator(length=6):
    config = transformers.T5Config(
        vocab_size=VOCABULARY,
        d_model=16,
        d_kv=8,
        d_ff=24,
        num_layers=2,
        num_heads=2,
        decoder_start_token_id=0,
    )
    return transformers.T5ForConditionalGeneration(config), words(22, length=length)


def tagger():
    config = transformers.RobertaConfig(
        vocab_size=VOCABULARY, num_labels=5, max_position_embeddings=40, **SMALL
    )
    return transformers.RobertaForTokenClassification(config), words(22, labels=lambda ids: ids % 5)


def pictures():
    config = transformers.ViTConfig(image_size=16, patch_size=8, num_labels=3, **SMALL)
    rows = [{"pixel_values": torch.randn(3, 16, 16), "labels": torch.tensor(row % 3)} for row in range(21)]
    return transformers.ViTForImageClassification(config), rows


def checked(made, folder, *, collator=None, compute_loss_func=None, **more):
    """The findings on a program that trains and evaluates."""
    torch.manual_seed(1)
    with virtual_gpus(2):
        watch = CallCheck()
        with watch.watching():
            model, rows = made()
            args = transformers.TrainingArguments(
                output_dir=str(folder),
                per_device_train_batch_size=2,
                per_device_eval_batch_size=2,
                num_train_epochs=1,
                report_to=[],
                save_strategy="no",
                disable_tqdm=True,
                **more,
            )
            trainer = transformers.Trainer(
                model,
                args,
                train_dataset=rows,
                eval_dataset=rows[:7],
                data_collator=collator,
                compute_loss_func=compute_loss_func,
            )
            assert args.n_gpu == 2
            trainer.train()
            trainer.evaluate()
        return watch.report().findings


def loud(findings):
    return [finding for finding in findings if finding.severity != "info"]


@pytest.mark.parametrize(
    ("made", "more"),
    [
        (classifier, {}),
        (classifier, {"gradient_accumulation_steps": 3}),
        (llama, {"collator": padded}),
        (llama, {"collator": padded, "gradient_checkpointing": True}),
        (gpt2, {"collator": padded, "gradient_accumulation_steps": 2}),
        (translator, {}),
        (pictures, {}),  # 21 rows: the last batch is a lone one
    ],
)
def test_a_program_equal_to_one_gpu_is_clean(made, more, tmp_path):
    assert loud(checked(made, tmp_path, **more)) == []


def shifted(rows):
    batch = padded(rows)
    shifting = translator()[0].prepare_decoder_input_ids_from_labels
    return batch | {"decoder_input_ids": shifting(labels=batch["labels"])}


def total_loss(outputs, labels, num_items_in_batch):
    """Each valid label counts alike: what the advice says in words."""
    logits = outputs.logits.flatten(0, -2)
    total = torch.nn.functional.cross_entropy(logits, labels.flatten(), reduction="sum")
    return total / num_items_in_batch.sum()


@pytest.mark.parametrize(
    ("made", "collator"),
    [(tagger, padded), (lambda: translator(None), shifted)],
    ids=["tagger", "translator"],
)
def test_unequal_token_weights_are_reported_with_a_fix(made, collator, tmp_path):
    (found,) = loud(checked(made, tmp_path / "before", collator=padded))
    assert (found.code, found.severity) == ("DP501", "warning")
    assert "compute_loss_func=total_loss" in found.code_after
    again = checked(made, tmp_path / "after", collator=collator, compute_loss_func=total_loss)
    assert loud(again) == []


def test_doubled_losses_of_the_trainer_are_a_note_with_a_fix(tmp_path):
    (found,) = (finding for finding in checked(classifier, tmp_path / "before") if finding.code == "DP501")
    assert found.code_after == "TrainingArguments(folder, average_tokens_across_devices=False)"
    again = checked(classifier, tmp_path / "after", average_tokens_across_devices=False)
    assert "DP501" not in {finding.code for finding in again}


def test_a_program_that_trains_a_sentence_transformer_is_clean(tmp_path):
    sentences = pytest.importorskip("sentence_transformers")
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    save_reader(tmp_path / "bert")
    with virtual_gpus(3):
        watch = CallCheck()
        with watch.watching():
            model = sentence_model(tmp_path / "bert", "cuda")
            args = sentences.SentenceTransformerTrainingArguments(
                output_dir=str(tmp_path), per_device_train_batch_size=2, max_steps=3, report_to=[]
            )
            sentences.SentenceTransformerTrainer(
                model, args, train_dataset=rated_pairs(), loss=losses.CosineSimilarityLoss(model)
            ).train()
        assert loud(watch.report().findings) == []
