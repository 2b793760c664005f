"""Finding out why results differ, or a replica raises: the same batch, cut in other ways on one GPU."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from dpdemo.arithmetic.chunk import split_batch
from dpdemo.arithmetic.rows import likely_rows
from dpdemo.calls.tree import flatten, rebuild, tensors_in
from dpdemo.checking.evidence import Comparison, LossGradients
from dpdemo.checking.observing import compare
from dpdemo.checking.observing.holders import core_of
from dpdemo.checking.observing.leaves import flatten_arguments
from dpdemo.checking.observing.mixing import first_mixing, traced
from dpdemo.checking.recording.drafts import Draft
from dpdemo.checking.running.batches import in_double, model_in_double
from dpdemo.checking.running.runs import Runner, RunResult, Whole
from dpdemo.checking.source import code_of
from dpdemo.models.inputs import Arguments
from dpdemo.results.findings import Place

_ROUNDING = 1e-3
"""In double precision round-off shrinks by 5e8, and what truly differs does not shrink at all."""

_MAX_GROUPS = 40
"""So many groups of arguments are tried whole, the smallest first."""


def _unlike_dims(given: list[tuple[str, torch.Tensor]], rows: int) -> Iterator[tuple[int, ...]]:
    """List the ways in which tensors can have so many rows on dimension 0 or 1, and not all on the same."""
    choices = [[dim for dim, size in enumerate(leaf.shape[:2]) if size == rows] for _, leaf in given]
    yield from (dims for dims in itertools.product(*choices) if len(set(dims)) > 1)


@dataclass(frozen=True)
class Causes:
    """Runs a call's batch again, on one GPU: with an argument whole, along another dimension, in float64."""

    runner: Runner
    mode: str
    draft: Draft
    single: object

    def blamed(self) -> tuple[str, ...]:
        """Name tensors that must not be cut: with them whole, chunks have the results of one device."""

        def is_right(whole: Whole) -> bool:
            results = self.runner.chunk_results(self.draft.delivered, self.mode, whole=whole)
            return results is not None and self._is_single(results, self.draft.wrapper.dim)

        return self._fewest(is_right)

    def mixing(self) -> Place | None:
        """Find where forward mixes samples, by plain calls of the batch and of the first of its chunks."""
        calls = []
        for given in ((self.draft.args, self.draft.kwargs), self.draft.delivered[0]):
            model = self.runner.single_model(self.mode)
            with traced(model) as steps:
                self.runner.called_aside(model, given)
            calls.append(steps)
        whole, chunk = calls
        return first_mixing(whole, chunk, code_of(self.runner.forward))

    def is_of_state(self) -> bool:
        """Whether chunks have the results of one device too, once the model has seen the whole batch.

        So it is for a mean that the first batch sets for good: samples mix in state that replicas lose.
        """
        model = self.runner.single_model(self.mode)
        self.runner.called_aside(model, (self.draft.args, self.draft.kwargs))
        results = [self.runner.called_aside(model, chunk) for chunk in self.draft.delivered]
        return all(result is not None for result in results) and self._is_single(
            results, self.draft.wrapper.dim
        )

    def needed_whole(self) -> tuple[str, ...]:
        """Name tensors without all of which a replica raises, and runs with them; () where there are none."""
        raising = min(self.draft.failures, default=None)
        if raising is None or raising >= len(self.draft.delivered):
            return ()
        chunk = [self.draft.delivered[raising]]
        if self.runner.chunk_results(chunk, self.mode) is not None:
            return ()  # which is about the replica then, not about its chunk
        return self._fewest(
            lambda whole: self.runner.chunk_results(chunk, self.mode, whole=whole) is not None
        )

    def _fewest(self, is_enough: Callable[[Whole], bool]) -> tuple[str, ...]:
        """Find one tensor that is enough, or else as few as possible, of those that could be meant whole."""
        known = dict(self._candidates())
        groups = (group for size in range(1, len(known) + 1) for group in itertools.combinations(known, size))
        for names in itertools.islice(groups, _MAX_GROUPS):
            if is_enough({name: known[name] for name in names}):
                return names
        return ()

    def _candidates(self) -> Iterator[tuple[str, torch.Tensor]]:
        """List the tensors that could be meant whole: all but the first with the rows of the batch."""
        tensors = self._arguments()
        sizes = [leaf.size(0) for _, leaf in tensors]  # the rows that they were made for, or those of most
        rows = self.draft.planned if self.draft.planned in sizes else likely_rows(sizes)
        batch = next((path for path, leaf in tensors if leaf.size(0) == rows), "")
        yield from ((path, leaf) for path, leaf in tensors if path != batch)

    def along_another(self, comparison: Comparison) -> Comparison:
        """Add the dimension on which the batch, or that of each argument, is.

        Of a model that works on each position by itself, cut along another dimension gives the results of one
        device too: that proves nothing where the batch is on the dimension that is cut.
        """
        if self._is_right_with_rest_whole():
            return comparison
        dim = self._better_dim()
        return replace(comparison, better_dim=dim, batch_dims=self._batch_dims() if dim is None else ())

    def _better_dim(self) -> int | None:
        """Find another dimension along which chunks have the results of one device, as of time-first RNNs."""
        given = list(tensors_in((self.draft.args, self.draft.kwargs)))
        now = self.draft.wrapper.dim
        if self._is_right_along(now, given):
            return None  # it is not for the dimension that something raises
        return next((dim for dim in (0, 1) if dim != now and self._is_right_along(dim, given)), None)

    def _is_right_with_rest_whole(self) -> bool:
        """Whether chunks are right as they are cut, once what has other sizes than the batch stays whole."""
        now, given = self.draft.wrapper.dim, self._arguments()
        sizes = [leaf.size(now) if leaf.dim() > now else 0 for _, leaf in given]
        if len(set(sizes)) < 2:
            return False
        for rows in dict.fromkeys(size for size in sizes if size > 1 or size == self.draft.planned):
            dims = [now if size == rows else None for size in sizes]
            results = self.runner.chunk_results(self._cut(dims, rows), self.mode)
            if results is not None and self._is_single(results, now):
                return True
        return False

    def _is_right_along(self, dim: int, given: list[torch.Tensor]) -> bool:
        """Whether chunks along a dimension of all tensors have the results of one device."""
        if not given or any(tensor.dim() <= dim or tensor.size(dim) < 2 for tensor in given):
            return False
        if len({tensor.size(dim) for tensor in given}) > 1:
            return False
        results = self.runner.chunk_results(self._cut([dim] * len(given), given[0].size(dim)), self.mode)
        return results is not None and self._is_single(results, dim)

    def _batch_dims(self) -> tuple[tuple[str, int], ...]:
        """Find on which dimension each tensor has the batch, where it is not the same one for all.

        So it is for an `x` of (time, batch, features) beside `lengths` of (batch,): no one dimension is right
        for both. Found by results that are those of one device once each is cut along its own.
        """
        given = self._arguments()
        rows = {size for _, leaf in given for size in leaf.shape[:2] if size > 1}
        ways = ((size, dims) for size in sorted(rows) for dims in _unlike_dims(given, size))
        for size, dims in itertools.islice(ways, _MAX_GROUPS):
            results = self.runner.chunk_results(self._cut(dims, size), self.mode)
            if results is not None and any(self._is_single(results, dim) for dim in (0, 1)):
                return tuple((path, dim) for (path, _), dim in zip(given, dims, strict=True))
        return ()

    def _arguments(self) -> list[tuple[str, torch.Tensor]]:
        """List the tensors among the arguments that have dimensions, with their paths."""
        draft = self.draft
        leaves = flatten_arguments(draft.wrapper.module.forward, draft.args, draft.kwargs)
        return [(path, leaf) for path, leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.dim()]

    def _cut(self, dims: Sequence[int | None], rows: int) -> list[Arguments]:
        """Cut the call's tensors into chunks, each along its own dimension; those without one stay whole."""
        sizes = list(split_batch(rows, len(self.draft.wrapper.device_ids)).sizes())
        starts = [sum(sizes[:index]) for index in range(len(sizes))]

        def chunk(start: int, size: int) -> Arguments:
            along = iter(dims)

            def part(leaf: Any) -> Any:
                dim = next(along) if isinstance(leaf, torch.Tensor) and leaf.dim() else None
                return leaf if dim is None else leaf.narrow(dim, start, size)

            return rebuild(self.draft.args, part), rebuild(self.draft.kwargs, part)

        return [chunk(*pair) for pair in zip(starts, sizes, strict=True)]

    def is_rounding(self, path: str, gap: float) -> bool:
        """Return whether the chunks' results are those of one device in double precision."""
        draft = self.draft
        single = self.runner.alone_on(self.mode, (draft.args, draft.kwargs), double=True)
        results = self.runner.chunk_results(draft.delivered, self.mode, double=True)
        if single is None or results is None:
            return False
        joined = compare.joined(results, draft.wrapper.dim) or {}
        one, many = dict(flatten(single)).get(path), joined.get(path)
        if many is None or not isinstance(one, torch.Tensor) or one.shape != many.shape:
            return False
        return (one.is_floating_point() or one.is_complex()) and compare.gap(one, many) <= _ROUNDING * gap

    def _is_single(self, results: list[object], dim: int) -> bool:
        joined = compare.joined(results, dim)
        return bool(joined) and bool(compare.first_difference(compare.tensors_of(self.single), joined)[0])


def are_gradients_rounding(runner: Runner, mode: str, given: Arguments) -> bool:
    """Return whether in double precision the gradients under DataParallel are those of one device."""
    both = _in_double(runner, mode, given)
    if both is None:
        return False
    for ran in both:
        compare.backward(_result(ran))
    alone, parallel = both
    return compare.compare_gradients(alone.model, core_of(parallel.model)).equal


def loss_in_double(runner: Runner, mode: str, given: Arguments, path: str) -> LossGradients | None:
    """Take the gradients of replicas' losses in double precision, which no autocast lowers."""
    both = _in_double(runner, mode, given)
    if both is None:
        return None
    alone, parallel = both
    for ran in both:
        compare.backward(_result(ran), path)
    if compare.is_coarse(_result(alone)):  # forward itself makes its numbers half as precise
        return None
    return compare.loss_gradients(alone.model, core_of(parallel.model), _result(parallel), path)


def _in_double(runner: Runner, mode: str, given: Arguments) -> tuple[RunResult, RunResult] | None:
    """Call the model on one device and under DataParallel in double precision; None where it fails."""
    double = rebuild(given, in_double)
    alone, parallel = (
        runner.run(model_in_double(model), double)
        for model in (runner.single_model(mode), runner.parallel_model(mode))
    )
    return None if alone.result is None or parallel.result is None else (alone, parallel)


def _result(ran: RunResult) -> object:
    assert ran.result is not None  # noqa: S101 - `_in_double` has looked
    return ran.result[0]
