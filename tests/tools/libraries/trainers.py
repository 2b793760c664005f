"""Hugging Face's trainers on virtual GPUs, where they wrap the model in DataParallel of their own accord.

The oracle is the same trainer on the CPU with as many rows a step, whose loss is worked out chunk by chunk.
Not collected by itself: CONTRIBUTING.md has the command. Nothing is downloaded.
"""

import pytest
import torch
from byhand import NUM_GPUS, chunks, state_of
from sentence_pairs import rated_pairs, save_reader, sentence_model

from dpdemo.virtual import virtual_gpus

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("default")  # what the libraries warn of is not ours
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
WITHOUT_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
ROWS_PER_GPU = 2


def examples(num=18, length=6):
    torch.manual_seed(2)
    words = torch.randint(5, 40, (num, length))
    return [
        {"input_ids": row, "attention_mask": torch.ones_like(row), "labels": row.sum() % 3} for row in words
    ]


def pairs(num=12):
    torch.manual_seed(3)
    sources, targets = torch.randint(5, 40, (num, 7)), torch.randint(5, 40, (num, 4))
    return [
        {"input_ids": source, "attention_mask": torch.ones_like(source), "labels": target}
        for source, target in zip(sources, targets, strict=True)
    ]


def in_chunks(kind):
    """The trainer `kind` with what DataParallel would do to its loss done by hand."""

    class InChunks(kind):
        def compute_loss(self, model, inputs, return_outputs=False, **_):
            outputs = [model(**chunk) for chunk in chunks(dict(inputs), NUM_GPUS)]
            loss = torch.stack([output.loss for output in outputs]).mean()
            logits = [output.logits for output in outputs]
            return (loss, {"loss": loss, "logits": torch.cat(logits)}) if return_outputs else loss

    return InChunks


def arguments(kind, folder, *, is_by_hand, **more):
    rows = ROWS_PER_GPU * (NUM_GPUS if is_by_hand else 1)
    return kind(
        output_dir=str(folder),
        per_device_train_batch_size=rows,
        per_device_eval_batch_size=rows,
        learning_rate=0.05,
        optim="sgd",  # Adam's first steps follow the sign of gradients that are zero but for rounding
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        logging_steps=1,
        use_cpu=is_by_hand,
        average_tokens_across_devices=False,  # else the trainer takes the loss of such models n times
        **more,
    )


def assert_both_agree(program):
    expected = program(True)
    with virtual_gpus(NUM_GPUS):
        found = program(False)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def logged(trainer, *names):
    return [[entry[name] for name in names if name in entry] for entry in trainer.state.log_history]


def test_a_language_model_loses_as_much_as_with_the_whole_batch(tmp_path):
    """The trainer tells each replica how many tokens all have: the sum over all is then the batch's own."""

    def program(is_by_hand):
        torch.manual_seed(1)
        config = transformers.LlamaConfig(
            vocab_size=40, num_key_value_heads=1, pad_token_id=0, use_cache=False, **SMALL
        )
        args = arguments(transformers.TrainingArguments, tmp_path, is_by_hand=is_by_hand, max_steps=3)
        args.average_tokens_across_devices = True
        rows = [{**row, "labels": row["input_ids"]} for row in examples()]
        trainer = transformers.Trainer(transformers.LlamaForCausalLM(config), args, train_dataset=rows)
        trainer.train()
        return logged(trainer, "loss", "grad_norm"), state_of(trainer.model)

    assert_both_agree(program)


def bert():
    torch.manual_seed(1)
    config = transformers.BertConfig(vocab_size=40, num_labels=3, **SMALL, **WITHOUT_DROPOUT)
    return transformers.BertForSequenceClassification(config)


@pytest.mark.parametrize("more", [{}, {"gradient_accumulation_steps": 2}], ids=["plain", "accumulated"])
def test_trainer_trains_evaluates_and_predicts(tmp_path, more):
    def program(is_by_hand):
        kind = in_chunks(transformers.Trainer) if is_by_hand else transformers.Trainer
        args = arguments(
            transformers.TrainingArguments, tmp_path, is_by_hand=is_by_hand, num_train_epochs=2, **more
        )
        trainer = kind(bert(), args, train_dataset=examples(), eval_dataset=examples(9))
        assert args.n_gpu == (0 if is_by_hand else NUM_GPUS)
        trainer.train()
        figures = trainer.evaluate()
        predicted = trainer.predict(examples(7)).predictions
        return logged(trainer, "loss", "grad_norm"), figures["eval_loss"], predicted, state_of(trainer.model)

    assert_both_agree(program)


def test_trainer_in_bfloat16_with_checkpoints_goes_on_where_it_stopped(tmp_path):
    with virtual_gpus(NUM_GPUS):
        args = arguments(transformers.TrainingArguments, tmp_path, is_by_hand=False, max_steps=4, bf16=True)
        args.save_strategy, args.save_steps = "steps", 2
        whole = transformers.Trainer(bert(), args, train_dataset=examples())
        whole.train()
        again = transformers.Trainer(bert(), args, train_dataset=examples())
        again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
        torch.testing.assert_close(state_of(again.model), state_of(whole.model))


def test_seq2seq_trainer_trains_and_generates(tmp_path):
    def program(is_by_hand):
        torch.manual_seed(1)
        config = transformers.T5Config(
            vocab_size=40,
            d_model=16,
            d_kv=8,
            d_ff=24,
            num_layers=1,
            num_heads=2,
            dropout_rate=0.0,
            decoder_start_token_id=0,
        )
        kind = transformers.Seq2SeqTrainer
        args = arguments(
            transformers.Seq2SeqTrainingArguments,
            tmp_path,
            is_by_hand=is_by_hand,
            max_steps=3,
            predict_with_generate=True,
            generation_max_length=6,
        )
        model = transformers.T5ForConditionalGeneration(config)
        trainer = (in_chunks(kind) if is_by_hand else kind)(model, args, train_dataset=pairs())
        trainer.train()
        written = trainer.predict(pairs(6)).predictions
        return logged(trainer, "loss", "grad_norm"), written, state_of(trainer.model)

    assert_both_agree(program)


def test_sentence_transformers_trains_and_encodes(tmp_path):
    sentences = pytest.importorskip("sentence_transformers")
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    save_reader(tmp_path / "bert")

    def program(is_by_hand):
        device = "cpu" if is_by_hand else "cuda"
        model = sentence_model(tmp_path / "bert", device)
        args = arguments(
            sentences.SentenceTransformerTrainingArguments, tmp_path, is_by_hand=is_by_hand, max_steps=3
        )
        trainer = sentences.SentenceTransformerTrainer(
            model, args, train_dataset=rated_pairs(), loss=losses.CosineSimilarityLoss(model)
        )
        trainer.train()
        encoded = model.encode(["a b", "c d e"], convert_to_tensor=True)
        assert encoded.device.type == device
        return logged(trainer, "loss", "grad_norm"), encoded.cpu(), state_of(model)

    assert_both_agree(program)
