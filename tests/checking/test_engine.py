"""What `check` promises besides its findings: the model stays as it is, faults do not hide each other."""

import functools
import gc
import queue
import threading
import types
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from cases_loss import a_loss_is_averaged_in_each_replica
from casetable import Counting, Linear, Net, x
from torch import nn

import dpdemo
from dpdemo.checking import check
from dpdemo.checking.precedence import merge
from dpdemo.checking.registry import choose, rule_of, rules
from dpdemo.checking.running.batches import plan
from dpdemo.checking.running.copying import deep_copy
from dpdemo.errors import UsageError
from dpdemo.results.findings import Finding, Place
from dpdemo.virtual import is_active


class Everything(Net):
    """Seven faults: one at scatter, four in the replicas, two at gather."""

    def __init__(self):
        super().__init__()
        self.steps = 0
        self.scale = torch.ones(3, device="cuda:0")
        self.register_buffer("mean", torch.zeros(3))
        self.seen = []

    def forward(self, x, w):
        self.steps += 1
        self.seen.append(len(x))
        y = self.fc(x) * self.scale
        self.mean = self.mean + y.detach().mean(0)
        return {"y": y * w.mean(), "names": ["a"], "count": 3}


def test_seven_faults_of_one_model_are_told_in_one_run():
    report = check(lambda: (Everything(), (x(), torch.ones(1))))
    assert set(report.codes) == {"DP201", "DP301", "DP302", "DP305", "DP309", "DP402", "DP403"}


class Unwritable:
    """A key that has no text."""

    def __repr__(self):
        raise RuntimeError("no text")


class Circular(Net):
    """Holds a list and a dict that contain themselves, and keys without a text; returns one of these."""

    def __init__(self):
        super().__init__()
        self.seen, self.tree, self.by_key = [], {}, {Unwritable(): 1}
        self.seen.append(self.seen)
        self.tree["self"] = self.tree

    def forward(self, x):
        return {Unwritable(): self.fc(x)}


class CircularAndCounting(Circular):
    def forward(self, x):
        self.tree["calls"] = self.tree.get("calls", 0) + 1
        return super().forward(x)


@pytest.mark.parametrize(("model", "codes"), [(Circular, set()), (CircularAndCounting, {"DP309"})])
def test_a_model_may_hold_itself_and_keys_without_a_text(model, codes):
    assert set(check(model(), x()).codes) == codes


@pytest.mark.parametrize("data_size", [None, 8])
def test_a_batch_of_no_rows_is_an_error(data_size):
    with pytest.raises(UsageError, match="expected a batch of 1 or more, got 0 rows"):
        check(Net(), ["0x3"], data_size=data_size)


def test_a_call_that_fails_before_any_replica_runs_says_nothing_of_state():
    """A running average that DataParallel would keep is not lost because a call never came to it."""

    class Averages(Net):
        def __init__(self):
            super().__init__()
            self.bn = nn.BatchNorm1d(3)

        def forward(self, x, scale=None):
            return self.bn(self.fc(x)) * scale.mean()

    report = check(lambda: (Averages(), {"x": x(), "scale": torch.tensor(2.0)}))
    assert "DP206" in report.codes
    assert "DP305" not in report.codes


def test_a_finding_points_to_the_users_line():
    report = check(lambda: (Everything(), (x(), torch.ones(1))))
    places = {finding.code: finding.place for finding in report.findings}
    lines = {
        code: Path(place.file).read_text().splitlines()[place.line - 1] for code, place in places.items()
    }
    assert "self.steps += 1" in lines["DP301"]
    assert "self.scale = " in lines["DP302"]
    (buffer,) = (finding for finding in report.findings if finding.code == "DP305")
    assert "self.mean = self.mean + y" in buffer.code_before
    assert lines["DP305"].strip() == buffer.code_before.splitlines()[0]  # where the repair begins
    assert "def forward(self, x, w)" in lines["DP201"]


def test_the_model_is_not_changed():
    """Parameters, buffers, mode, gradients, attributes and the generator's state are as before."""

    class Model(nn.Sequential):
        steps = 0

        def forward(self, x):
            self.steps += 1
            return super().forward(x)

    model = Model(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout()).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    numbers = torch.get_rng_state()
    inputs = x()
    given = inputs.clone()
    check(model, inputs)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not model.training
    assert model.steps == 0
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), numbers)
    assert torch.equal(inputs, given)
    assert {value.device.type for value in model.state_dict().values()} == {"cpu"}


def test_pytorch_is_as_it_was_afterwards():
    watched = [nn.DataParallel.forward, nn.Module.named_parameters, torch.Tensor.to, torch.zeros]
    check(Linear, x())
    assert watched == [nn.DataParallel.forward, nn.Module.named_parameters, torch.Tensor.to, torch.zeros]
    assert not is_active()


def test_two_checks_find_the_same():
    assert check(a_loss_is_averaged_in_each_replica) == check(a_loss_is_averaged_in_each_replica)


def test_an_exception_that_no_finding_explains_is_reported_beside_other_errors():
    class Model(Counting):
        def forward(self, x):
            if len(x) == 2:
                raise AttributeError("'Model' object has no attribute 'rows'")
            return super().forward(x)

    assert check(Model, x()).codes == ("DP301", "DP390")


def test_a_comment_silences_one_rule_on_its_line():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.steps = 0  # dpdemo: ignore[DP301]
            self.calls = 0
            self.rows = 0

        def forward(self, x):
            self.steps += 1
            self.calls += 1
            self.rows += len(x)  # dpdemo: ignore[DP301]
            return self.fc(x)

    report = check(Model, x())
    assert [finding.subject for finding in report.findings] == ["calls"]
    assert report.silenced == 2


def test_a_comment_for_another_rule_silences_nothing():
    class Model(Net):
        def __init__(self):
            super().__init__()
            self.steps = 0  # dpdemo: ignore[DP302, DP4]

        def forward(self, x):
            self.steps += 1
            return self.fc(x)

    assert check(Model, x()).codes == ("DP301",)


def test_select_and_ignore_take_codes_names_and_beginnings():
    codes = lambda **chosen: [rule.code for rule in choose(**chosen)]  # noqa: E731
    assert codes(select=["dp5"], ignore=["DP59"]) == ["DP501", "DP502"]
    assert codes(select=["lost-state"], ignore=[]) == ["DP301"]
    assert len(codes(select=[], ignore=[])) == len(rules())


def test_an_unknown_code_is_an_error_that_knows_a_near_one():
    with pytest.raises(UsageError, match="got 'DP9' - at argument `ignore`"):
        check(Linear, x(), ignore=["DP9"])
    with pytest.raises(UsageError) as caught:
        check(Linear, x(), select=["lost-stat"])
    assert "lost-state" in caught.value.hint


def test_inputs_that_fit_no_device_are_said_to_be_that():
    with pytest.raises(UsageError, match=r"expected Linear to run with these inputs on one GPU") as caught:
        check(Linear, torch.ones(8, 5))
    assert "without DataParallel" in caught.value.message
    assert "not about DataParallel" in caught.value.hint


@pytest.mark.parametrize(
    ("model", "inputs", "says"),
    [
        (lambda: 3, ["8x4"], "expected a torch.nn.Module"),
        (lambda: 1 / 0, ["8x4"], "ZeroDivisionError"),
        (nn.Identity, None, "its layers do not tell"),
        (Linear, ["8y4"], "got '8y4' - at argument `inputs`"),
        (Linear, ["8x4:float8"], "got '8x4:float8'"),
        (3, None, "got int - at argument `model`"),
    ],
)
def test_bad_input_is_a_usage_error(model, inputs, says):
    with pytest.raises(UsageError) as caught:
        check(model, inputs)
    assert says in str(caught.value)


def test_a_model_that_moves_to_no_gpu_is_a_usage_error():
    model = Linear()
    model.register_buffer("empty", torch.empty(2, device="meta"))
    with pytest.raises(UsageError, match="expected a model that moves to a GPU, got NotImplementedError"):
        check(model, x())


class Sparse(nn.Module):
    def __init__(self, growing=False):
        super().__init__()
        self.register_buffer("edges", torch.eye(4).to_sparse())
        self.shape_alone = torch.empty(2, device="meta")
        self.growing = growing

    def forward(self, x):
        y = torch.sparse.mm(self.edges, x.t()).t()
        if self.growing:
            self.edges = self.edges * 2
        return y


def test_sparse_and_meta_tensors_of_a_model_are_compared():
    assert not check(Sparse(), x()).findings
    assert check(Sparse(growing=True), x()).codes == ("DP305",)


class Waves(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.full((4,), 1j))

    def forward(self, x):
        return torch.fft.fft(x, dim=0) * self.w


def test_complex_numbers_are_whole_in_double_precision():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check(Waves(), x()).codes == ("DP502",)


@pytest.mark.parametrize("gpus", [1, 0, True, 129, "4"])
def test_the_number_of_gpus_is_at_least_two(gpus):
    with pytest.raises(UsageError, match="expected 2 to 128 GPUs"):
        check(Linear, x(), gpus=gpus)


def test_the_batches_of_an_epoch_are_planned():
    sizes = lambda *args, **more: [(batch.size, batch.mode, batch.is_real) for batch in plan(*args, **more)]  # noqa: E731
    full = [(32, "train", True), (32, "eval", True)]
    assert sizes(32, 4, None, drop_last=False) == [*full, (5, "train", False), (3, "eval", False)]
    assert sizes(32, 4, 100, drop_last=False) == [*full, (4, "train", True), (4, "eval", True)]
    assert sizes(32, 4, 100, drop_last=True) == sizes(32, 4, 96, drop_last=False) == full
    assert sizes(4, 4, None, drop_last=False) == [(4, "train", True), (4, "eval", True), (3, "eval", False)]


def test_findings_of_one_cause_are_merged_and_the_worst_leads():
    place = Place("model.py", 3)
    finding = Finding(rule_of("DP316"), "warning", "norm", "maybe", None, ("batch 5, train",))
    other = replace(finding, severity="error", message="surely", place=place, seen_in=("batch 7, train",))
    (merged,) = merge([finding, other])
    assert (merged.severity, merged.message, merged.place) == ("error", "surely", place)
    assert merged.seen_in == ("batch 5, train", "batch 7, train")


def test_a_line_of_a_layer_that_comes_many_times_is_one_finding():
    class Layer(Net):
        def __init__(self):
            super().__init__()
            self.steps = 0

        def forward(self, x):
            self.steps += 1
            return x + self.fc(x).sum(1, keepdim=True)

    (finding,) = check(lambda: nn.Sequential(Layer(), Layer(), Layer()), x()).findings
    assert finding.message.startswith("`0.steps` goes from 0 to 1")
    assert finding.message.endswith("(and 2 more like it)")


def test_progress_is_told_step_by_step():
    steps = []
    check(Linear, x(), progress=steps.append)
    assert steps == ["building the model", "batch 8, train", "batch 8, eval", "batch 5, train"]


def test_the_pytest_helper_fails_with_the_findings():
    with pytest.raises(AssertionError, match=r"DP501 loss-scale: gradients of loss\.sum") as caught:
        dpdemo.assert_no_pitfalls(a_loss_is_averaged_in_each_replica)
    assert "instead of: " in str(caught.value)
    assert dpdemo.assert_no_pitfalls(Linear, x(), fail_on="info").ok


def test_a_check_leaves_no_models_behind():
    check(Linear, x())
    gc.collect()
    alive = [thing for thing in gc.get_objects() if type(thing) is Linear]
    assert len(alive) <= 1  # a frame of a test that failed may hold one


def test_a_clean_model_runs_no_more_often_than_it_must():
    """Once on one GPU and once in each replica, for each batch: cost is counted, not timed.

    No code of this model names its mode, so the full batch in evaluation is that in training.
    """
    calls = []

    class Model(Net):
        def forward(self, x):
            calls.append(len(x))
            return self.fc(x)

    check(Model, x())
    assert calls == [*(8, 2, 2, 2, 2), *(5, 2, 2, 1)]


class Hooked(nn.Module):
    """A working model whose hooks, lists and dicts lead back to it through closures."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.head = nn.Linear(4, 3)
        head = self.head

        def scaled(module, args, output):  # noqa: ARG001 - what a hook is given
            return output * head.weight.sum()

        self.fc.register_forward_hook(scaled)
        self.by_name = {"head": lambda y: self.head(y)}  # noqa: PLW0108 - as users write
        self.steps = [functools.partial(self._step, 2.0), lambda y, head=head: y + head.bias.sum()]

    def _step(self, factor, y):
        return y * factor + self.fc.bias.sum()

    def forward(self, x):
        y = self.fc(x)
        for step in self.steps:
            y = step(y)
        return self.by_name["head"](y)


@pytest.mark.parametrize(
    "kind", [threading.Lock, threading.RLock, threading.Condition, threading.Event, queue.Queue]
)
def test_what_threads_wait_for_is_copied_and_works(kind):
    """A model whose replicas share a lock can be checked, also while the original holds it."""
    model = nn.Linear(2, 2)
    model.shared = kind()
    if hasattr(model.shared, "acquire"):
        model.shared.acquire()
    twin = deep_copy(model).shared
    assert twin is not model.shared
    if isinstance(twin, queue.Queue):
        twin.put(1)
        assert (twin.get(timeout=60), model.shared.qsize()) == (1, 0)
    elif isinstance(twin, threading.Event):
        twin.set()
        assert twin.wait(timeout=60)
        assert not model.shared.is_set()
    else:
        assert twin.acquire(timeout=60)
        if isinstance(twin, threading.Condition):
            twin.notify_all()
        twin.release()
        with twin:
            pass


def test_a_copy_of_a_model_leads_to_itself_through_closures_in_hooks_lists_and_dicts():
    model = Hooked()
    twin = deep_copy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert twin.by_name["head"](torch.ones(1, 4)).abs().sum() > 0
    assert twin.steps[0].func.__self__ is twin
    (hook,) = twin.fc._forward_hooks.values()
    assert hook(None, None, torch.ones(1)).abs().sum() > 0


def test_a_working_model_with_closures_is_not_refused():
    assert "DP304" in check(Hooked, x()).codes


def test_a_function_that_closes_over_itself_is_copied():
    model = Linear()

    def again(n):
        return model.fc.weight.sum() if n == 0 else again(n - 1)

    model.again = again
    twin = deep_copy(model)
    assert twin.again is not again
    with torch.no_grad():
        model.fc.weight.zero_()
    assert twin.again(2) != 0


def test_what_a_forward_left_behind_is_copied_too():
    model = nn.utils.spectral_norm(nn.Linear(4, 3))
    model(x())
    model.kept = model(x())
    model.of_object = types.SimpleNamespace(kept=[model(x())])
    twin = deep_copy(model)
    assert torch.equal(twin.kept, model.kept)
    assert torch.equal(twin.of_object.kept[0], model.of_object.kept[0])


def test_a_model_that_only_its_factory_can_make_is_built_anew():
    """Its copies share what the original holds open."""

    class Once:
        def __init__(self):
            self.is_original = True

        def __deepcopy__(self, memo):
            twin = Once()
            twin.is_original = False
            return twin

    class Model(Net):
        def __init__(self):
            super().__init__()
            self.once = Once()

        def forward(self, x):
            assert self.once.is_original
            return self.fc(x)

    assert check(Model, x()).ok
    with pytest.raises(UsageError) as caught:
        check(Model(), x())
    assert "a copy of it was called" in caught.value.hint


def test_an_input_that_the_first_layer_tells_is_taken_and_said():
    report = check(Linear, gpus=2, batch_size=8)
    assert report.batch_sizes[0] == 8
    assert report.assumed == ("run with --input 8x4, inferred from the first layer",)


def test_gradients_of_evaluation_are_taken_where_training_did_not_show_them():
    class Model(nn.Module):
        """Random in training, and in evaluation its parameters have no gradients in replicas."""

        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 3)

        def forward(self, x):
            y = nn.functional.dropout(self.fc(x), 0.5, self.training)
            return y if x.get_device() == 0 else y.detach() + 0 * x.sum()

    report = check(Model, x(), gpus=2)
    assert "gradients differ" in " ".join(finding.message for finding in report.findings)


def test_a_model_with_a_part_in_dataparallel_is_run_as_it_is_and_that_is_said():
    def made(inner):
        return lambda: (nn.Sequential(inner(nn.Linear(4, 4)), nn.Linear(4, 2)), torch.ones(8, 4))

    (said,) = check(made(nn.DataParallel)).assumed
    assert said.startswith("run as it is, for `0` is in DataParallel already")
    assert check(made(lambda layer: layer)).assumed == ()
    assert check(lambda: (nn.DataParallel(nn.Linear(4, 2)), torch.ones(8, 4))).assumed == ()


@pytest.mark.parametrize(("is_trained", "codes"), [(False, ("DP106",)), (True, ())])
def test_a_wrapped_part_that_is_not_trained_is_a_warning_for_the_whole_may_be_wrapped_too(is_trained, codes):
    class Student(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 3)
            self.teacher = nn.DataParallel(nn.Linear(4, 3)).requires_grad_(is_trained)

        def forward(self, x):
            return (self.fc(x) - self.teacher(x)).square().mean(1)

    report = check(Student, torch.ones(8, 4))
    assert report.codes == codes
    assert all(finding.severity == "warning" for finding in report.findings)


def test_a_result_that_follows_state_of_the_batch_is_told_with_the_state():
    class Normalised(Net):
        def __init__(self):
            super().__init__()
            self.shift, self.scale = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.ones(3))
            self.is_ready = False

        def forward(self, x):
            y = self.fc(x)
            if not self.is_ready:
                self.shift.data.copy_(-y.detach().mean(0))
                self.scale.data.copy_(1 / y.detach().std(0))
                self.is_ready = True
            return (y + self.shift) * self.scale

    found = [finding for finding in check(Normalised, x()).findings if finding.severity != "info"]
    assert [finding.code for finding in found] == ["DP313", "DP313"]  # a weight each, and no DP502
