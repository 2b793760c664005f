"""What explains, records and repeats a batch, with unequal chunks."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpdemo

WEIGHTS = [(1, 2, 2), (0, 2, 1), (0, 0, 1), (2, 0, 1), (1, 0, 0)]


@settings(max_examples=40)
@given(
    model=st.sampled_from(["linear", "partial", "hybrid", "rnn"]),
    batch_size=st.integers(1, 12),
    weights=st.lists(st.integers(0, 4), min_size=2, max_size=5).filter(any),
    dim=st.integers(0, 1),
)
def test_explained_chunks_are_the_predicted_ones(model, batch_size, weights, dim):
    config = {"model": model, "batch_size": batch_size, "data_size": batch_size, "dim": dim}
    config |= {"gpus": len(weights), "weights": weights}
    found = dpdemo.explain(**config, virtual=True)
    (predicted,) = dpdemo.simulate(**config).batches
    scatter = found.steps[0]
    sizes = [piece.shapes[0][1][dim] for piece in scatter.made]
    assert sizes == [run.rows for run in predicted.in_model for _ in run.devices]
    assert [piece.device for piece in scatter.made] == [
        name for run in predicted.in_model for name in run.devices
    ]
    assert list(found.idle) == list(predicted.idle)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_a_recording_is_repeated_with_its_weights(weights, tmp_path):
    recording = dpdemo.record(gpus=[0, 1, 2], weights=weights, virtual=True)
    recording.save(tmp_path / "weights.json")
    outcome = dpdemo.replay(tmp_path / "weights.json", virtual=True)
    assert outcome.verdict == "identical"
    assert outcome.num_tensors > 10


def test_the_json_form_carries_how_a_batch_was_cut():
    report = dpdemo.simulate(gpus=3, chunks=[4, 13, 13])
    assert report.config.model_dump(mode="json")["chunks"] == [4, 13, 13]


def test_both_strategies_are_compared_as_torch_cuts():
    from dpdemo.comparing.compare import compare

    config = dpdemo.Config(gpus=3, weights=(1, 2, 2))
    with pytest.raises(dpdemo.UsageError, match="expected the chunks of torch"):
        compare(config)
