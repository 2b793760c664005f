"""The watch over DataParallel, against torch.chunk and by what it must leave alone."""

import contextlib
import copy
import gc
import pickle
import sys
import threading
import weakref
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.parallel import data_parallel, parallel_apply, scatter

from dpdemo.calls import records, seam
from dpdemo.calls.calls import watching
from dpdemo.results.devices import Devices
from dpdemo.virtual import virtual_gpus


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x, scale=None):
        if scale is not None:
            x = x * scale
        return {"out": self.fc(x), "rows": x}


class Emptied(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, batch):
        return self.fc(batch.pop("x"))


def linear():
    return nn.DataParallel(nn.Linear(3, 2)).cuda()


def rows_of(group):
    return [replica.rows for replica in group.in_model]


@pytest.mark.parametrize("num_gpus", [1, 2, 3, 8])
@pytest.mark.parametrize("batch_size", [1, 2, 7, 10, 30])
def test_what_reached_each_gpu_is_what_torch_chunk_gives(num_gpus, batch_size):
    with virtual_gpus(num_gpus), watching() as watch:
        linear()(torch.randn(batch_size, 3))
        (use,) = watch.uses()
    (group,) = use.splits
    chunks = [len(chunk) for chunk in torch.randn(batch_size, 3).chunk(num_gpus)]
    assert rows_of(group) == chunks
    assert (group.batch_size, group.first, group.count) == (batch_size, 1, 1)
    assert [replica.device for replica in group.in_model] == [f"cuda:{i}" for i in range(len(chunks))]
    assert list(group.idle) == [f"cuda:{i}" for i in range(len(chunks), num_gpus)]
    assert (group.outside.input_device, group.outside.device) == ("cpu", "cuda:0")
    assert group.outside.output == (("", (batch_size, 2)),)


def test_calls_split_alike_are_one_entry_wherever_they_stand():
    with virtual_gpus(2), watching() as watch:
        model = linear()
        for _ in range(3):
            for size in (4, 4, 1):
                model(torch.randn(size, 3))
        (use,) = watch.uses()
    assert [(group.first, group.count, rows_of(group)) for group in use.splits] == [
        (1, 6, [2, 2]),
        (3, 3, [1]),
    ]
    assert use.num_calls == 9


def test_different_splits_are_kept_up_to_a_limit_and_then_counted(monkeypatch):
    monkeypatch.setattr(records, "MAX_SPLITS", 3)
    with virtual_gpus(2), watching() as watch:
        model = linear()
        for size in (1, 2, 3, 4, 5, 1):
            model(torch.randn(size, 3))
        (use,) = watch.uses()
    assert [group.batch_size for group in use.splits] == [1, 2, 3]
    assert (use.num_calls, use.num_unlisted) == (6, 2)
    assert sum(group.count for group in use.splits) == 4


def test_an_object_that_is_never_called_is_told_too():
    with virtual_gpus(2), watching() as watch:
        first, second = nn.DataParallel(nn.ReLU()), linear()
        second.module(torch.randn(4, 3).cuda())
        del first
        uses = watch.uses()
    assert [(use.number, use.wrapper, use.module) for use in uses] == [
        (1, "DataParallel", "ReLU"),
        (2, "DataParallel", "Linear"),
    ]
    assert all(use.num_calls == 0 and use.splits == () for use in uses)
    assert uses[0].devices == Devices.of("cuda", range(2))


def test_device_ids_output_device_and_dim_are_as_they_were_given():
    with virtual_gpus(4), watching() as watch:
        model = nn.DataParallel(nn.ReLU(), device_ids=[3, 1], output_device=2, dim=1)
        model(torch.randn(2, 5))
        (use,) = watch.uses()
    assert list(use.devices) == ["cuda:3", "cuda:1"]
    (group,) = use.splits
    assert [(run.device, run.rows, run.input) for run in group.in_model] == [
        ("cuda:3", 3, (("", (2, 3)),)),
        ("cuda:1", 2, (("", (2, 2)),)),
    ]
    assert (group.batch_size, group.outside.device) == (5, "cuda:2")


def test_keyword_inputs_and_structures_are_named_by_path():
    with virtual_gpus(2), watching() as watch:
        nn.DataParallel(Scaled()).cuda()(torch.randn(4, 3), scale=torch.ones(4, 1))
        (use,) = watch.uses()
    run = use.splits[0].in_model[0]
    assert run.input == (("0", (2, 3)), ("scale", (2, 1)))
    assert run.output == (("out", (2, 2)), ("rows", (2, 3)))


def test_a_call_that_fails_is_counted_as_failed():
    with virtual_gpus(2), watching() as watch:
        model = linear()
        with pytest.raises(RuntimeError, match="Caught RuntimeError in replica 0"):
            model(torch.randn(4, 7))
        model(torch.randn(4, 3))
        (use,) = watch.uses()
    assert (use.num_calls, use.num_failed, len(use.splits)) == (1, 1, 1)


def test_the_functional_forms_are_seen():
    with virtual_gpus(3), watching() as watch:
        module = nn.Linear(3, 2).cuda()
        nn.parallel.data_parallel(module, torch.randn(6, 3), device_ids=[0, 2])
        replicas = nn.parallel.replicate(module, [0, 1])
        nn.parallel.parallel_apply(replicas, nn.parallel.scatter(torch.randn(5, 3), [0, 1]))
        functional, bare = watch.uses()
    assert (functional.wrapper, list(functional.devices)) == ("data_parallel", ["cuda:0", "cuda:2"])
    assert (functional.splits[0].batch_size, rows_of(functional.splits[0])) == (6, [3, 3])
    assert (bare.wrapper, bare.splits[0].batch_size, rows_of(bare.splits[0])) == ("parallel_apply", 5, [3, 2])
    assert functional.is_function
    assert bare.is_function


def test_a_subclass_is_seen_whatever_it_overrides():
    class OwnForward(nn.DataParallel):
        def forward(self, x):
            inputs, kwargs = self.scatter((x,), {}, self.device_ids)
            replicas = self.replicate(self.module, self.device_ids)
            return self.gather(self.parallel_apply(replicas, inputs, kwargs), 1)

    class OwnApply(nn.DataParallel):
        def parallel_apply(self, replicas, inputs, kwargs):
            return [
                replica(*given, **named)
                for replica, given, named in zip(replicas, inputs, kwargs, strict=True)
            ]

    with virtual_gpus(2), watching() as watch:
        for kind in (OwnForward, OwnApply):
            kind(nn.ReLU())(torch.randn(4, 3))
        forward, apply = watch.uses()
    assert (forward.wrapper, rows_of(forward.splits[0]), forward.splits[0].outside.device) == (
        "OwnForward",
        [2, 2],
        "cuda:1",
    )
    assert (apply.wrapper, apply.num_calls, apply.splits[0].in_model) == ("OwnApply", 1, ())


def test_dataparallel_inside_a_replica_is_one_object_however_often_it_is_replicated():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.DataParallel(nn.ReLU(), device_ids=[0])

        def forward(self, x):
            return self.inner(x)

    with virtual_gpus(2), watching() as watch:
        model = nn.DataParallel(Outer())
        for _ in range(3):
            model(torch.randn(4, 3))
        inner, outer = watch.uses()
    assert (outer.module, outer.in_replica, outer.num_calls) == ("Outer", False, 3)
    assert (inner.module, inner.in_replica, inner.num_calls) == ("ReLU", True, 6)


def test_calls_from_several_threads_are_all_counted():
    def call(model):
        for size in (2, 4, 3, 4):
            model(torch.randn(size, 3))

    with virtual_gpus(2), watching() as watch:
        models = [linear(), linear()]
        threads = [threading.Thread(target=call, args=(models[i % 2],)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        uses = watch.uses()
    for use in uses:
        assert {group.batch_size: (group.count, rows_of(group)) for group in use.splits} == {
            2: (2, [1, 1]),
            4: (4, [2, 2]),
            3: (2, [2, 1]),
        }


def test_the_programs_objects_stay_as_they_were_and_are_not_kept_alive():
    with virtual_gpus(2):
        plain = set(vars(linear()))
        with watching():
            model = linear()
            model(torch.randn(4, 3))
            assert set(vars(model)) == plain
            assert not model._forward_hooks
            assert type(pickle.loads(pickle.dumps(model))) is nn.DataParallel  # noqa: S301 - our own
            assert set(vars(copy.deepcopy(model))) == plain
            gone = weakref.ref(model)
            del model
            gc.collect()
            assert gone() is None


def test_a_copy_is_an_object_of_its_own():
    with virtual_gpus(2), watching() as watch:
        model = linear()
        copy.deepcopy(model)(torch.randn(4, 3))
        assert [(use.number, use.num_calls) for use in watch.uses()] == [(1, 0), (2, 1)]


def test_what_a_thread_does_aside_is_not_seen_and_what_others_do_meanwhile_is():
    aside = set()
    with virtual_gpus(2), watching(lambda: threading.get_ident() in aside) as watch:
        model = linear()
        aside.add(threading.get_ident())
        thread = threading.Thread(target=model, args=(torch.randn(8, 3),))
        thread.start()
        thread.join()
        model(torch.randn(4, 3))
        linear()(torch.randn(6, 3))
        nn.parallel.data_parallel(nn.Linear(3, 2).cuda(), torch.randn(4, 3).cuda())
        with contextlib.suppress(RuntimeError):
            model(torch.randn(4, 4))
        aside.clear()
        model(torch.randn(8, 3))
        (use,) = watch.uses()
    assert (use.num_calls, use.num_failed, use.splits[0].batch_size) == (2, 0, 8)


def test_a_module_that_is_wrapped_anew_is_one_entry():
    module = nn.Linear(3, 2)
    with virtual_gpus(2), watching() as watch:
        module.cuda()
        for rows in (4, 6, 4):
            nn.DataParallel(module)(torch.randn(rows, 3))
        nn.DataParallel(module, device_ids=[0])
        nn.DataParallel(nn.Linear(3, 2))
        uses = watch.uses()
    assert [(use.num_objects, use.num_calls) for use in uses] == [(3, 3), (1, 0), (1, 0)]
    assert [(group.batch_size, group.count) for group in uses[0].splits] == [(4, 2), (6, 1)]


def test_modules_under_the_function_are_apart_by_place_and_one_where_a_loop_makes_them():
    with virtual_gpus(2), watching() as watch:
        first, other = nn.Linear(3, 2).cuda(), nn.Linear(3, 2).cuda()
        for _ in range(2):
            data_parallel(first, torch.randn(4, 3))
            data_parallel(other, torch.randn(4, 3))
        data_parallel(first, torch.randn(4, 3))  # the same module, wherever it is called
        for _ in range(5):
            data_parallel(nn.Linear(3, 2).cuda(), torch.randn(4, 3))
        uses = watch.uses()
    assert [(use.num_calls, use.num_objects) for use in uses] == [(3, 1), (2, 1), (5, 5)]


def _local_class():
    class Local(nn.Linear):
        pass

    return Local(3, 2).cuda()


def _failing(call, *args):
    with pytest.raises(RuntimeError):
        call(*args)


EVERY_STEP = {
    "wrapper": lambda x, _: nn.DataParallel(nn.Linear(3, 2).cuda())(x),
    "of a class of its own": lambda x, _: nn.DataParallel(_local_class())(x),
    "function": lambda x, _: data_parallel(nn.Linear(3, 2).cuda(), x),
    "function of a class of its own": lambda x, _: data_parallel(_local_class(), x),
    "parallel_apply": lambda x, _: parallel_apply(
        [nn.Linear(3, 2).cuda(index) for index in range(2)], scatter(x, [0, 1])
    ),
    "lambda": lambda x, _: parallel_apply([lambda x: x, lambda x: x], scatter(x, [0, 1])),
    "source": lambda x, step: parallel_apply(
        [eval(f"lambda x: x + {step}")] * 2,  # noqa: S307 - ours
        scatter(x, [0, 1]),
    ),
    "failing": lambda x, _: _failing(data_parallel, nn.Linear(4, 2).cuda(), x),
    "failing parallel_apply": lambda x, _: _failing(
        parallel_apply, [nn.Linear(4, 2).cuda(0), nn.Linear(4, 2).cuda(1)], scatter(x, [0, 1])
    ),
}


@pytest.mark.parametrize("kind", EVERY_STEP)
def test_modules_and_functions_that_are_made_at_each_step_are_one_entry(kind):
    kept = []
    with virtual_gpus(2), watching() as watch:
        x = torch.ones(4, 3).cuda()
        for step in range(6):
            kept.append(EVERY_STEP[kind](x, step))  # noqa: PERF401 - a comprehension is a place too
        (use,) = watch.uses()
    assert use.num_calls + use.num_failed == 6


def test_shapes_are_those_before_the_call_which_may_empty_its_input():
    with virtual_gpus(2), watching() as watch:
        nn.DataParallel(Emptied()).cuda()({"x": torch.randn(5, 3)})
        nn.DataParallel(Emptied(), device_ids=[0]).cuda()({"x": torch.randn(5, 3)})
        both = watch.uses()
    assert [[run.input for run in use.splits[0].in_model] for use in both] == [
        [(("x", (3, 3)),), (("x", (2, 3)),)],
        [(("x", (5, 3)),)],
    ]


def test_modules_that_are_equal_are_not_one():
    class Equal(nn.Linear):
        def __eq__(self, other):
            return isinstance(other, Equal)

        def __hash__(self):
            return 1

    with virtual_gpus(2), watching() as watch:
        data_parallel(Equal(3, 2).cuda(), torch.randn(4, 3))
        data_parallel(Equal(3, 2).cuda(), torch.randn(4, 3))
        assert [use.num_calls for use in watch.uses()] == [1, 1]


def replaced():
    """Return what the seam changes: two methods of DataParallel, and the code of six functions."""
    functions = [vars(sys.modules[f"torch.nn.parallel.{home}"])[name] for name, home in seam._HOMES.items()]
    return [
        vars(nn.DataParallel).get("__init__"),
        vars(nn.DataParallel).get("__call__", "inherited"),
        *(function.__code__ for function in functions),
    ]


def test_a_call_pays_for_the_seam_only_where_someone_looks_at_calls():
    genuine = replaced()[:2]
    with seam.around(replicate=lambda proceed, *args: proceed(*args)):
        assert replaced()[:2] == genuine
    with seam.around():  # kept open for what comes inside
        assert all(now is not then for now, then in zip(replaced()[:2], genuine, strict=True))
    assert replaced()[:2] == genuine


def test_everything_is_put_back_also_after_an_exception():
    before = replaced()
    with virtual_gpus(2):
        with contextlib.suppress(KeyError), watching():
            assert all(now is not then for now, then in zip(replaced(), before, strict=True))
            raise KeyError
        assert all(now is then for now, then in zip(replaced(), before, strict=True))


class Doubled(nn.DataParallel):
    """A subclass whose forward calls DataParallel's, as many do: that does not count as a second call."""

    def forward(self, *inputs, **kwargs):
        return super().forward(*inputs, **kwargs) * 2


@pytest.mark.parametrize("kind", [nn.DataParallel, Doubled])
def test_forward_of_a_wrapper_is_a_call_of_it(kind):
    with virtual_gpus(2), watching() as watch:
        wrapper = kind(nn.Linear(3, 2)).cuda()
        x = torch.ones(5, 3).cuda()
        assert torch.equal(wrapper.forward(x), wrapper(x))
        assert torch.equal(wrapper.forward(x), wrapper(x))
    (use,) = watch.uses()
    assert (use.wrapper, use.num_calls, use.is_function) == (kind.__name__, 4, False)
    assert [rows_of(group) for group in use.splits] == [[3, 2]]
    assert use.splits[0].outside.input == (("", (5, 3)),)


def test_forward_of_a_wrapper_that_fails_is_counted():
    with virtual_gpus(2), watching() as watch:
        with pytest.raises(RuntimeError):
            linear().forward(torch.ones(5, 4).cuda())
        assert linear()(torch.ones(5, 3).cuda()).shape == (5, 2)
    assert [(use.num_calls, use.num_failed) for use in watch.uses()] == [(0, 1), (1, 0)]


class Called:
    def __call__(self, x):
        return x + 1

    def method(self, x, k=1):
        return x * k


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("<lambda>", lambda: [lambda x, k=k: x * k for k in range(2)]),
        ("method", lambda: [Called().method, Called().method]),
        ("method", lambda: [partial(partial(Called().method), k=k) for k in range(2)]),
        ("Called", lambda: [Called(), Called()]),
        ("relu", lambda: [torch.relu, torch.relu]),
        ("forward", lambda: [nn.Linear(3, 2).cuda(index).forward for index in range(2)]),
    ],
)
def test_functions_that_are_made_at_each_step_are_one_entry(name, make):
    with virtual_gpus(2), watching() as watch:
        for _ in range(3):
            parallel_apply(make(), scatter(torch.ones(4, 3).cuda(), [0, 1]))
            parallel_apply(
                make(), scatter(torch.ones(4, 3).cuda(), [0, 1]), devices=[torch.device("cuda"), "cuda:1"]
            )
    (use,) = watch.uses()
    assert (use.wrapper, use.module, use.num_calls) == ("parallel_apply", name, 6)
    assert [rows_of(group) for group in use.splits] == [[2, 2]]


@pytest.mark.parametrize("device_ids", [None, [0, 1], ["cuda:0", torch.device("cuda:1")]])
def test_a_functional_call_that_fails_is_counted(device_ids):
    with virtual_gpus(2), watching() as watch:
        model = nn.Linear(3, 2).cuda()
        with pytest.raises(RuntimeError):
            data_parallel(model, torch.ones(5, 4).cuda(), device_ids)
        assert data_parallel(model, torch.ones(5, 3).cuda(), device_ids).shape == (5, 2)
    (use,) = watch.uses()
    assert (use.wrapper, use.num_calls, use.num_failed) == ("data_parallel", 1, 1)


@pytest.mark.parametrize("device_ids", [["nowhere"], 7])
def test_a_functional_call_of_devices_that_are_none_fails_as_unwatched(device_ids):
    errors = []
    for watched in (False, True):
        with virtual_gpus(2), watching() if watched else contextlib.nullcontext() as watch:
            with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever PyTorch raises
                data_parallel(nn.Linear(3, 2).cuda(), torch.ones(5, 3).cuda(), device_ids)
            errors.append((caught.type, str(caught.value)[:30]))
            if watch is not None:
                assert [use.num_failed for use in watch.uses()] == [1]
    assert errors[0] == errors[1]
