"""Explaining a batch with unequal chunks."""

from hypothesis import given, settings
from hypothesis import strategies as st

import dpdemo


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
    assert sizes == [replica.rows for replica in predicted.in_model]
    assert [piece.device for piece in scatter.made] == [replica.device for replica in predicted.in_model]
    assert list(found.idle) == list(predicted.idle)
