"""Turning two runs of a batch, on one GPU and under DataParallel, into the evidence of a `Probe`."""

import warnings
from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from dpdemo.calls.tree import flatten, rebuild
from dpdemo.checking.errors import is_of_devices
from dpdemo.checking.evidence import COARSE, Comparison, LossGradients, Probe, RaisedError, Single
from dpdemo.checking.observing import compare
from dpdemo.checking.observing.causes import Causes, are_gradients_rounding, loss_in_double
from dpdemo.checking.observing.changed import Changes
from dpdemo.checking.observing.freezing import same
from dpdemo.checking.observing.holders import core_of
from dpdemo.checking.observing.leaves import describe_all
from dpdemo.checking.recording.drafts import Draft, raised
from dpdemo.checking.running.batches import ProbeBatch
from dpdemo.checking.running.runs import Runner, RunResult
from dpdemo.models.failure import users_code


@dataclass
class Judge:
    """Turns two runs of a batch into a `Probe`."""

    runner: Runner
    planned: ProbeBatch
    single: RunResult
    parallel: RunResult
    drafts: list[Draft]
    compares_gradients: bool = True
    draft: Draft | None = None
    """The call that the probe is about, where the whole model is in DataParallel."""
    rehearsal: RaisedError | None = None
    chunks: list[object] | None = None

    def __post_init__(self) -> None:
        if self.drafts and isinstance(self.parallel.model, nn.DataParallel):
            self.draft = self.drafts[0]
            self.draft.planned = self.planned.size

    def judge(self, peaks: tuple[int, ...]) -> Probe:
        """Compare the two runs."""
        planned, single, parallel = self.planned, self.single, self.parallel
        if self.draft is not None and self.draft.failures:
            self._rehearse_gather(self.draft)
        comparison = self._compare()
        went_backward = comparison.gradients_equal is not None or comparison.loss is not None
        changed = Changes(self.runner, planned, single, parallel, self.draft)
        changes = changed.all(agrees=self._agrees(comparison), went_backward=went_backward)
        error = parallel.error
        if error is not None and self.drafts and self.drafts[0].error is not None:
            error = self.drafts[0].error
        return Probe(
            planned.size,
            planned.mode,
            planned.is_real,
            Single(
                describe_all(flatten(single.result[0])) if single.result else (),
                single.error,
                single.used_random,
                single.writes_parameters or self._writes_other_numbers(),
            ),
            calls=tuple(draft.freeze() for draft in self.drafts),
            raised=error,
            changes=changes,
            comparison=comparison,
            gather_rehearsal=self.rehearsal,
            norms_batches=self._norms_batches,
            peak_bytes=peaks,
        )

    @property
    def _norms_batches(self) -> bool:
        return any(isinstance(module, _BatchNorm) for module in self.single.model.modules())

    def _rehearse_gather(self, draft: Draft) -> None:
        """Find out what gather would have said, had the replicas not failed: with their chunks' results."""
        self.chunks = self.runner.chunk_results(draft.delivered, self.planned.mode)
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

    def _writes_other_numbers(self) -> bool:
        """Whether forward writes to parameters that it asks for, once no two of them are the same.

        A target network begins as a copy: what a moving average writes to it are the numbers that it has.
        """
        asks = any(event.kind == "named_parameters" for draft in self.drafts for event in draft.watch.events)
        if not asks or self.single.error is not None:
            return False
        model = self.runner.single_model(self.planned.mode)
        with torch.no_grad():
            for index, parameter in enumerate(model.parameters()):
                if parameter.is_floating_point():
                    parameter.add_(0.01 * (index % 7 + 1))
        ran = self.runner.run(model, (self.single.untouched[0], self.single.untouched[1]))
        return ran.writes_parameters or any(
            held.kind == "parameter" and not same(held.value, ran.after[path].value, of_one_model=True)
            for path, held in ran.before.items()
            if path in ran.after
        )

    def _causes(self, draft: Draft) -> Causes:
        alone = self.single.result[0] if self.single.result else None
        return Causes(self.runner, self.planned.mode, draft, alone)

    def _agrees(self, comparison: Comparison) -> bool:
        """Return whether replicas gave what the model gives for their chunks, and the gradients are right."""
        if comparison.values_equal is True:
            return comparison.gradients_equal is not False
        return comparison.equals_chunkwise is True or self.single.used_random

    def _compare(self) -> Comparison:
        if self.single.result is None:
            return Comparison()
        draft, alone = self.draft, self.single.result[0]
        failures = draft.failures.values() if draft is not None else ()
        if draft is None or all(is_of_devices(error.message) for error in failures):
            return self._compare_results(alone)
        causes = self._causes(draft)
        compared = causes.along_another(self._compare_results(alone))
        return compared if compared.batch_dims else replace(compared, needed_whole=causes.needed_whole())

    def _compare_results(self, alone: object) -> Comparison:
        draft, gathered = self.draft, self.parallel.result
        if draft is not None and draft.gathered is not None:
            gathered = draft.gathered
        if gathered is None:
            return Comparison()
        objects = compare.joined_objects(alone, gathered[0])
        if self.single.used_random:
            return self._compare_gradients(alone, Comparison(joined=objects))
        equal, path, gap = compare.first_difference(alone, gathered[0])
        if equal is not True and draft is not None and _is_padded(draft):
            return Comparison(joined=objects)
        summed, neither = compare.reduced_numbers(alone, gathered[0])
        comparison = Comparison(
            equal, path, largest_difference=gap, summed=summed, of_the_batch=neither, joined=objects
        )
        if equal is not True and draft is not None and draft.delivered:
            comparison = self._explain(draft, alone, gathered[0], comparison)
        return self._compare_gradients(alone, comparison)

    def _explain(  # noqa: PLR0911 - a cause each
        self, draft: Draft, alone: object, gathered: object, comparison: Comparison
    ) -> Comparison:
        """Tell samples that see each other from replicas that are not the model."""
        dim = draft.wrapper.dim
        chunks = self.chunks or self.runner.chunk_results(draft.delivered, self.planned.mode)
        if chunks is None:
            return comparison
        joined = compare.joined(chunks, dim)
        if joined is None:
            return comparison
        equal, _, _ = compare.first_difference(joined, compare.tensors_of(gathered))
        comparison = replace(comparison, equals_chunkwise=equal)
        if not equal or compare.scalar_path(alone, gathered) is not None:
            return comparison
        if self.planned.mode == "train" and self._norms_batches:
            return comparison  # that is BatchNorm's doing
        causes = self._causes(draft)
        if comparison.values_equal is False:
            if causes.is_rounding(comparison.differing or "", comparison.largest_difference):
                return replace(comparison, values_equal=True, differing=None)
            order = compare.reordered(alone, chunks) if dim == 0 else ()
            comparison = replace(comparison, reordered=order, blamed=() if order else causes.blamed())
        if comparison.blamed or comparison.reordered:
            return comparison
        comparison = causes.along_another(comparison)
        if comparison.is_along_another:
            return comparison
        mixing = causes.mixing() if dim == 0 else None
        return replace(comparison, mixing=mixing, is_of_state=causes.is_of_state())

    def _compare_gradients(self, alone: object, comparison: Comparison) -> Comparison:
        single, parallel, draft = self.single, self.parallel, self.draft
        if parallel.result is None:
            return comparison
        split = parallel.result[0]
        path = compare.scalar_path(alone, split)
        if not self.compares_gradients and (path is None or self.planned.mode != "train"):
            return comparison  # of a loss they depend on how large the chunks are
        if path is None and comparison.values_equal is not True:
            return comparison
        error = _go_backward(alone, path) or _go_backward(split, path)
        if error is not None:
            return self._with_blame(comparison, error, path)
        core = core_of(parallel.model)
        gradients = compare.compare_gradients(single.model, core, coarse=compare.is_coarse(alone))
        if path is None:
            is_normed = self.planned.mode == "train" and self._norms_batches  # theirs are of chunks anyway
            is_known = gradients.equal or (gradients.single_finite and not is_normed)  # NaN says nothing
            given = parallel.untouched  # the model's own arguments: a wrapper within is given others
            is_equal = gradients.equal or (
                gradients.finite and are_gradients_rounding(self.runner, self.planned.mode, given)
            )
            return replace(comparison, gradients_equal=is_equal if is_known else None)
        is_known = gradients.finite and gradients.single_finite and not single.used_random
        loss = self._loss_gradients(alone, core, split, path) if is_known else None
        is_unequal = loss is not None and loss.error(loss.mean) > loss.unequal
        if is_unequal and draft is not None and draft.delivered and draft.wrapper.dim == 0:
            comparison = replace(comparison, mixing=self._causes(draft).mixing())
        return replace(
            comparison,
            gradients_equal=gradients.equal,
            loss_not_finite=not (gradients.finite and _is_finite(split, path)),
            single_finite=gradients.single_finite and _is_finite(alone, path),
            loss=loss,
            loss_path=path,
        )

    def _loss_gradients(
        self, alone: object, core: nn.Module, split: object, path: str
    ) -> LossGradients | None:
        """Take gradients of the replicas' losses: in double if half precision rounds them, and that runs."""
        loss = compare.loss_gradients(self.single.model, core, split, path)
        if loss is None or not compare.is_coarse(alone):
            return loss
        exact = loss_in_double(self.runner, self.planned.mode, self.parallel.untouched, path)
        return exact or replace(loss, unequal=COARSE)

    def _with_blame(self, comparison: Comparison, error: RaisedError, path: str | None) -> Comparison:
        """Say where backward raises: each run is made anew, for one may write over what the other left."""
        runner, mode = self.runner, self.planned.mode
        alone, _ = runner.run_alone(mode, self.single.untouched)
        raised_alone = _go_backward(alone.result[0], path) if alone.result else error
        if raised_alone is not None:
            return replace(comparison, single_backward_raised=raised_alone)
        split = runner.run(runner.parallel_model(mode), self.parallel.untouched)
        raised_split = _go_backward(split.result[0], path) if split.result else None
        if raised_split is None:
            return replace(comparison, single_backward_raised=error)
        return replace(comparison, backward_raised=raised_split)


def _is_padded(draft: Draft) -> bool:
    """Whether a wrapper joins, in its own way, tensors of replicas that differ in more than their rows."""
    wrapper = draft.wrapper
    if not isinstance(wrapper, nn.DataParallel) or type(wrapper).gather is nn.DataParallel.gather:
        return False
    others: dict[str, set[tuple[int, ...]]] = {}
    for output in draft.outputs.values():
        for path, leaf in flatten(output):
            if isinstance(leaf, torch.Tensor):
                shape = (*leaf.shape[: wrapper.dim], *leaf.shape[wrapper.dim + 1 :])
                others.setdefault(path, set()).add(shape)
    return any(len(shapes) > 1 for shapes in others.values())


def _go_backward(result: object, path: str | None) -> RaisedError | None:
    """Go backward from a result, and return what was raised on the way."""
    try:
        with users_code(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a model's warnings were heard in its forward
            compare.backward(result, path)
    except Exception as error:  # noqa: BLE001 - such as a forward that went backward itself
        return raised("backward", error)
    return None


def _is_finite(value: object, path: str) -> bool:
    return bool(dict(flatten(value))[path].isfinite().all())


def _moved(value: object, device: torch.device) -> object:
    return rebuild(
        value, lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) and leaf.is_cuda else leaf
    )
