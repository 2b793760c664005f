"""Turning two runs of a batch, on one GPU and under DataParallel, into the evidence of a `Probe`."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from dpdemo.preflight import compare, state
from dpdemo.preflight.batches import Planned
from dpdemo.preflight.evidence import Comparison, Probe, Raised, Single, StateChange
from dpdemo.preflight.leaves import describe_all, flatten, flatten_arguments, named, rebuild, structure
from dpdemo.preflight.recorder import Draft, raised
from dpdemo.split import split_batch

if TYPE_CHECKING:
    from dpdemo.preflight.probes import Prober, Ran


class Judge:
    """Turns two runs of a batch into a `Probe`."""

    def __init__(
        self, prober: "Prober", planned: Planned, single: "Ran", parallel: "Ran", drafts: list[Draft]
    ) -> None:
        self.prober = prober
        self.planned = planned
        self.single = single
        self.parallel = parallel
        self.drafts = drafts
        self.is_whole = isinstance(parallel.model, nn.DataParallel)
        self.draft = drafts[0] if drafts and self.is_whole else None
        self.rehearsal: Raised | None = None
        self.chunks: list[Any] | None = None

    def judge(self, peaks: tuple[int, ...]) -> Probe:
        """Compare the two runs."""
        planned, single, parallel = self.planned, self.single, self.parallel
        if self.draft is not None and self.draft.failures:
            self._rehearse_gather()
        changes = (*self._state_changes(), *self._argument_changes())
        comparison = self._compare()
        error = parallel.error
        if error is not None and self.drafts and self.drafts[0].error is not None:
            error = self.drafts[0].error
        return Probe(
            planned.size,
            "train" if planned.mode == "train" else "eval",
            planned.is_real,
            Single(
                describe_all(flatten(single.result[0])) if single.result else (),
                structure(single.result[0]) if single.result else "",
                single.error,
                single.used_random,
                single.warned,
            ),
            calls=tuple(draft.freeze() for draft in self.drafts),
            raised=error,
            changes=changes,
            comparison=comparison,
            gather_rehearsal=self.rehearsal,
            peak_bytes=peaks,
        )

    def _rehearse_gather(self) -> None:
        """Find out what gather would have said, had the replicas not failed: with their chunks' results."""
        draft = self.draft
        assert draft is not None  # noqa: S101 - asked by `judge`
        self.chunks = self.prober.chunk_results(draft, self.planned.mode)
        if self.chunks is None or len(self.chunks) < 2:
            return
        for index, result in enumerate(self.chunks):
            device = torch.device("cuda", draft.wrapper.device_ids[index])
            draft.outputs.setdefault(index, _moved(result, device))
        outputs = [draft.outputs[index] for index in range(len(self.chunks))]
        try:
            draft.gathered = (nn.parallel.gather(outputs, draft.wrapper.output_device, draft.wrapper.dim),)
        except Exception as error:  # noqa: BLE001 - whatever gather says
            self.rehearsal = raised("gather", error)

    def _state_changes(self) -> tuple[StateChange, ...]:
        single, parallel = self.single, self.parallel
        if parallel.error is not None and not (self.draft and self.draft.delivered):
            return ()
        found = state.changes(
            single.before,
            single.after if single.error is None else None,
            parallel.after,
            parallel.before,
        )
        suspects = [
            change
            for change in found
            if change.kind == "buffer" and change.parallel_changed and not change.same
        ]
        if not suspects or self.draft is None or not self.draft.delivered:
            return found
        first = self._after_first_chunk()
        return tuple(
            replace(change, like_first_chunk=True)
            if change in suspects
            and change.path in first
            and state.same(first[change.path].value, parallel.after[change.path].value, of_one_model=False)
            else change
            for change in found
        )

    def _after_first_chunk(self) -> state.Snapshot:
        assert self.draft is not None  # noqa: S101 - asked by `_state_changes`
        model = self.prober.single_model(self.planned.mode)
        args, kwargs = self.draft.delivered[0]
        ran = self.prober.run(model, (args, kwargs))
        return ran.after

    def _argument_changes(self) -> Iterator[StateChange]:
        single, parallel = self.single, self.parallel
        forward = single.model.forward
        rows = [
            flatten_arguments(forward, *given)
            for given in (single.untouched, single.given, parallel.untouched, parallel.given)
        ]
        if len({tuple(path for path, _ in row) for row in rows}) != 1:
            yield from self._grown_arguments()
            return
        for (path, was), (_, alone), (_, was_parallel), (_, split) in zip(*rows, strict=True):
            frozen = [state.frozen(value, 1) for value in (was, alone, was_parallel, split)]
            changed = not state.same(frozen[0], frozen[1], of_one_model=False)
            changed_parallel = not state.same(frozen[2], frozen[3], of_one_model=False)
            if changed or changed_parallel:
                yield StateChange(
                    path,
                    "input" if isinstance(was, torch.Tensor) else "argument",
                    state.show(frozen[0]),
                    state.show(frozen[1]),
                    state.show(frozen[3]),
                    changed,
                    changed_parallel,
                    state.same(frozen[1], frozen[3], of_one_model=False),
                )

    def _grown_arguments(self) -> Iterator[StateChange]:
        """Find arguments whose structure forward changed, such as an empty list that was appended to."""
        single, parallel = self.single, self.parallel
        rows = [
            named(single.model.forward, *given) for given in (single.untouched, single.given, parallel.given)
        ]
        for (path, was), (_, alone), (_, split) in zip(*rows, strict=True):
            frozen = [state.frozen(value) for value in (was, alone, split)]
            if len(flatten(was)) != len(flatten(split)) or (isinstance(was, list) and len(was) != len(split)):
                before, after, after_parallel = map(state.show, frozen)
                yield StateChange(path, "argument", before, after, after_parallel, True, True, same=False)

    def _compare(self) -> Comparison:
        single, draft = self.single, self.draft
        if single.result is None:
            return Comparison()
        gathered = draft.gathered if draft is not None else self.parallel.result
        if gathered is None:
            return Comparison()
        if single.used_random:
            return self._compare_gradients(Comparison()) if self._is_loss() else Comparison()
        equal, path, gap = compare.first_difference(single.result[0], gathered[0])
        comparison = Comparison(values_equal=equal, differing=path, largest_difference=gap)
        if equal is not True and draft is not None and len(draft.delivered) > 1:
            comparison = self._explain(draft, gathered[0], comparison)
        return self._compare_gradients(comparison)

    def _explain(self, draft: Draft, gathered: Any, comparison: Comparison) -> Comparison:
        """Tell samples that see each other from replicas that are not the model."""
        dim = draft.wrapper.dim
        chunks = self.chunks or self.prober.chunk_results(draft, self.planned.mode)
        if chunks is None or self.single.result is None:
            return comparison
        joined = compare.joined(chunks, dim)
        if joined is None:
            return comparison
        tensors = {path: leaf for path, leaf in flatten(gathered) if isinstance(leaf, torch.Tensor)}
        equal, _, _ = compare.first_difference(joined, tensors)
        comparison = replace(comparison, equals_chunkwise=equal)
        if comparison.values_equal is False and equal:
            comparison = replace(comparison, blamed_argument=self._blame(draft))
        return comparison

    def _blame(self, draft: Draft) -> str:
        """Find a tensor that must not be cut: with it whole, the chunks' results are those of one device."""
        assert self.single.result is not None  # noqa: S101 - asked by `_compare`
        single = {k: v for k, v in flatten(self.single.result[0]) if isinstance(v, torch.Tensor)}
        leaves = flatten_arguments(draft.wrapper.module.forward, draft.args, draft.kwargs)
        tensors = [(path, leaf) for path, leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.dim()]
        for path, leaf in tensors[1:]:
            chunks = self.prober.chunk_results(draft, self.planned.mode, whole=(path, leaf))
            joined = compare.joined(chunks, draft.wrapper.dim) if chunks else None
            if joined is not None and compare.first_difference(single, joined)[0]:
                return path
        return ""

    def _is_loss(self) -> bool:
        single, parallel = self.single.result, self.parallel.result
        return bool(single and parallel and compare.scalar_path(single[0], parallel[0]) is not None)

    def _compare_gradients(self, comparison: Comparison) -> Comparison:
        single, parallel = self.single, self.parallel
        if single.result is None or parallel.result is None:
            return comparison
        path = compare.scalar_path(single.result[0], parallel.result[0])
        if path is None and comparison.values_equal is not True:
            return comparison
        try:
            compare.backward(single.result[0], path)
            compare.backward(parallel.result[0], path)
        except Exception:  # noqa: BLE001 - such as a forward that went backward itself
            return comparison
        core = parallel.model.module if isinstance(parallel.model, nn.DataParallel) else parallel.model
        gradients = compare.compare_gradients(single.model, core, coarse=compare.is_coarse(single.result[0]))
        if path is None:
            is_known = gradients.equal or gradients.single_finite  # NaN of both says nothing
            return replace(comparison, gradients_equal=gradients.equal if is_known else None)
        chunks = len(self.draft.delivered) if self.draft else 1
        is_known = gradients.proportional or self._is_mean_of_chunks(path, core)
        return replace(
            comparison,
            gradients_equal=gradients.equal,
            sum_factor=gradients.factor if is_known else None,
            mean_factor=gradients.factor / chunks if gradients.proportional and gradients.factor else None,
            loss_not_finite=not (gradients.finite and _is_finite(parallel.result[0], path)),
            single_finite=gradients.single_finite and _is_finite(single.result[0], path),
        )

    def _is_mean_of_chunks(self, path: str, core: nn.Module) -> bool:
        """Whether uneven chunks' losses, each weighed with its rows, have the gradients of one GPU."""
        result = self.parallel.result
        sizes = split_batch(self.planned.size, len(self.prober.device_ids)).sizes()
        if result is None or dict(flatten(result[0]))[path].numel() != len(sizes):
            return False
        core.zero_grad()
        compare.backward(result[0], path, [rows / self.planned.size for rows in sizes])
        return compare.compare_gradients(self.single.model, core).equal


def _is_finite(value: Any, path: str) -> bool:
    return bool(dict(flatten(value))[path].isfinite().all())


def _moved(value: Any, device: torch.device) -> Any:
    return rebuild(
        value, lambda _, leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) and leaf.is_cuda else leaf
    )
