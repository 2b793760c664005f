"""What two runs of a batch have changed: the model's state, the arguments, and what is outside of both."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from dpdemo.calls.tree import tensors_in
from dpdemo.checking.evidence import Kind, StateChange
from dpdemo.checking.observing import compare, state
from dpdemo.checking.observing.freezing import as_value, frozen, same
from dpdemo.checking.observing.holders import core_of
from dpdemo.checking.observing.leaves import flatten_arguments, named
from dpdemo.checking.questions.words import top_name
from dpdemo.checking.recording.drafts import Draft
from dpdemo.checking.running.batches import ProbeBatch
from dpdemo.checking.running.runs import Runner, RunResult
from dpdemo.checking.source import writing_argument
from dpdemo.models.inputs import Arguments

_KEPT = ("attribute", "container", "mode")


@dataclass(frozen=True)
class Changes:
    """Lists what forward, and going backward, changed in two runs of a batch."""

    runner: Runner
    planned: ProbeBatch
    single: RunResult
    parallel: RunResult
    draft: Draft | None

    def all(self, *, agrees: bool, went_backward: bool) -> tuple[StateChange, ...]:
        """List it, each piece of state once.

        Args:
            agrees: whether replicas gave what the model gives for their chunks.
            went_backward: whether both runs went backward, too.

        """
        changes = (*self.of_state(agrees=agrees), *self.of_arguments())
        known = {change.path for change in changes}
        backward = self.of_backward() if went_backward else ()
        return (*changes, *(change for change in backward if change.path not in known))

    def of_state(self, *, agrees: bool) -> tuple[StateChange, ...]:
        """List what forward changed in the model, and of each piece whether anything depends on it."""
        single, parallel = self.single, self.parallel
        if parallel.error is not None and not (self.draft and self.draft.delivered):
            return ()
        after = single.after if single.error is None else None
        found = state.changes(single.before, after, parallel.after, parallel.before)
        if parallel.error is None and agrees:
            found = self._with_harmless(found)
        return tuple(self._against_chunks(found))

    def _against_chunks(self, found: tuple[StateChange, ...]) -> Iterator[StateChange]:
        """Mark the buffers that DataParallel leaves as a call of chunk 0 alone does."""
        delivered, is_random = self.draft.delivered if self.draft else [], self.single.used_random
        suspects = {
            change.path
            for change in found
            if change.kind == "buffer" and not change.same and (change.parallel_changed or is_random)
        }
        first = self._after(delivered[0]) if suspects and delivered else {}
        are_alike = len({tuple(leaf.shape for leaf in tensors_in(chunk)) for chunk in delivered[:2]}) == 1
        second = (
            self._after(delivered[1]) if first and is_random and len(delivered) > 1 and are_alike else first
        )
        for change in found:
            if change.path in suspects and change.path in first and change.path in second:
                left = first[change.path].value
                is_left = same(left, self.parallel.after[change.path].value, of_one_model=False)
                of_rows = not same(left, second[change.path].value, of_one_model=False)
                yield replace(
                    change, like_first_chunk=change.parallel_changed and is_left, follows_rows=of_rows
                )
            else:
                yield change

    def of_backward(self) -> tuple[StateChange, ...]:
        """List the buffers that going backward changes, as a function of autograd with a table does."""
        single, parallel = self.single, self.parallel
        found = state.changes(
            state.buffers_in(single.after),
            state.snapshot(single.model, "buffer"),
            state.snapshot(core_of(parallel.model), "buffer"),
            state.buffers_in(parallel.after),
        )
        return tuple(replace(change, is_of_backward=True) for change in found)

    def _with_harmless(self, found: tuple[StateChange, ...]) -> tuple[StateChange, ...]:
        """Mark state that nothing depends on: a second call keeps it, and no result shows that it is there.

        So it is for a mask that is made when it is missing, for scratch space and for a cache; not for a
        counter, for what the first batch sets for good, nor for what two replicas write to one place of a
        shared container.
        """
        single = self.single
        suspects = [
            change for change in found if change.kind in _KEPT or (change.kind == "buffer" and change.is_lost)
        ]
        if single.result is None or not suspects:
            return found
        second = self.runner.run(single.model, (single.untouched[0], single.untouched[1]))
        if second.result is None or not compare.first_difference(single.result[0], second.result[0])[0]:
            return found
        if all(change.same or change in suspects for change in found) and self._shows_in_a_chunk():
            return found
        num_replicas = len(self.draft.delivered) if self.draft else 1
        return tuple(
            replace(change, harmless=True)
            if change in suspects
            and state.same_at(change.path, single.after, second.after)
            and not state.is_contested(
                change.path, single.before, single.after, self.parallel.after, num_replicas
            )
            else change
            for change in found
        )

    def _shows_in_a_chunk(self) -> bool:
        """Return whether the model gives other results for the last chunk, now that it has seen the batch."""
        if self.draft is None or not self.draft.delivered:
            return False
        chunk = self.draft.delivered[-1]
        later = self.runner.called_aside(self.single.model, chunk)
        fresh = self.runner.alone_on(self.planned.mode, chunk)
        both = later is not None and fresh is not None
        return both and compare.first_difference(fresh, later)[0] is False

    def _after(self, chunk: Arguments) -> state.Snapshot:
        return self.runner.run(self.runner.single_model(self.planned.mode), chunk).after

    def of_arguments(self) -> Iterator[StateChange]:
        """List the arguments that forward wrote to: their leaves, or whole ones where a list has grown."""
        single, parallel, forward = self.single, self.parallel, self.single.model.forward
        of_runs = (single.untouched, single.given, parallel.untouched, parallel.given)
        rows = [flatten_arguments(forward, *given) for given in of_runs]
        is_whole = len({tuple(path for path, _ in row) for row in rows}) != 1
        if is_whole:
            rows = [named(forward, *given) for given in of_runs]
        for (path, was), *others in zip(*rows, strict=True):
            copies = [frozen(value, not is_whole) for value in (was, *(value for _, value in others))]
            changed, changed_parallel, is_same = (
                not same(copies[0], copies[1], of_one_model=False),
                not same(copies[2], copies[3], of_one_model=False),
                same(copies[1], copies[3], of_one_model=False),
            )
            if changed_parallel or (changed and not is_whole):  # of a structure each replica may have its own
                kind: Kind = "input" if isinstance(was, torch.Tensor) else "argument"
                values = as_value(copies[0]), as_value(copies[1]), as_value(copies[3])
                written = writing_argument(forward, top_name(path))
                yield StateChange(path, kind, *values, changed, changed_parallel, is_same, written=written)
