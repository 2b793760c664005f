"""Checking the calls of a script: mistakes in them are found, and the script does not notice."""

import contextlib
import logging
import random
import sys
import threading
import warnings

import numpy as np
import pytest
import torch
from cases import TRIGGERS, TWINS
from cases_scatter import Lengths
from casetable import Counting, Linear, Net, steps, x
from fastpart import mostly_slow
from torch import nn

from dpdemo.calls.calls import watching
from dpdemo.checking.running.batches import on_device
from dpdemo.models.inputs import Batches
from dpdemo.programs import callcheck
from dpdemo.programs.callcheck import CallCheck, is_rehearsing
from dpdemo.programs.execute import counting
from dpdemo.virtual import virtual_gpus

SILENT = {
    *("DP201", "DP205", "DP207", "DP210", "DP211", "DP301", "DP305", "DP306", "DP308", "DP309"),
    *("DP311", "DP313", "DP401", "DP403", "DP408", "DP409", "DP501", "DP502", "DP590", "DP601"),
}
"""The rules whose pitfalls raise nothing, at least in some of their triggers."""


def silent(cases):
    """One case of each rule: `test_rules.py` has them all."""
    return list({case.code: case for case in reversed(cases) if case.code in SILENT}.values())


def script_of(case):
    """Do what a script would: wrap the model unless it is, and call it with two batches in both modes."""
    model, inputs = case.factory()
    dim = getattr(model, "dim", case.options.get("dim", 0))
    batches = Batches.of(inputs, None, 8, dim)
    model = model.to("cuda:0")
    if not any(isinstance(module, nn.DataParallel) for module in model.modules()):
        model = nn.DataParallel(model, dim=dim)
    autocast = case.options.get("autocast")
    kind = {"dtype": getattr(torch, autocast)} if autocast else {"enabled": False}
    for size in dict.fromkeys((batches.size, 5)):
        args, kwargs = on_device(batches.arguments(size), torch.device("cuda:0"))
        for mode in (True, False):
            with contextlib.suppress(Exception), torch.autocast("cuda", **kind):  # some of them do fail
                model.train(mode)(*args, **kwargs)


def report_on(script, gpus=4):
    with virtual_gpus(gpus):
        check = CallCheck()
        with check.watching():
            script()
        return check.report()


def codes(report, *severities):
    return {finding.code for finding in report.findings if finding.severity in (severities or ("error",))}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", mostly_slow(silent(TRIGGERS), 4), ids=str)
def test_a_script_with_a_silent_pitfall_is_found_out_in_the_words_of_check(case):
    report = report_on(lambda: script_of(case), case.options.get("gpus", 4))
    messages = [found_item.message for found_item in report.findings if found_item.code == case.code]
    assert any(all(word in message for word in case.says) for message in messages), (case.says, messages)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", mostly_slow(silent(TWINS), 4), ids=str)
def test_its_fixed_twin_is_clean(case):
    report = report_on(lambda: script_of(case))
    told = codes(report, "error", "warning") - {"DP213"}  # 5 rows do leave a GPU idle
    assert told <= set(case.also), report.findings
    assert case.code in case.also or case.code not in report.codes
    draws = "DP603" in report.codes  # a script's own call cannot be repeated without its random numbers
    assert all(draws and note.endswith("because forward draws random numbers") for note in report.notes)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", mostly_slow(range(20, 24), 4))
def test_gradients_that_differ_by_magnified_rounding_are_no_finding(seed):
    """With other weights it is the results that differ, or nothing; of 60 seeds two gave a false alarm."""
    torch.manual_seed(seed)
    (case,) = [
        found_item
        for found_item in TWINS
        if found_item.factory.__name__ == "groups_of_one_number_are_normalised_to_rounding"
    ]
    assert "DP590" not in report_on(lambda: script_of(case)).codes


class Block(nn.Module):
    """A typical layer: normalise, draw random numbers, change the input in place."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 12)
        self.norm = nn.BatchNorm1d(12)
        self.drop = nn.Dropout(0.3)

    def forward(self, x):
        print("a print of forward")
        logging.getLogger("training").warning("a log of forward")
        warnings.warn("a warning of forward", stacklevel=1)
        return self.drop(torch.relu_(self.norm(self.fc(x))))


class Classifier(nn.Module):
    """A model with DataParallel around its middle only."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(4, 4)
        self.blocks = nn.DataParallel(Block())
        self.head = nn.Linear(12, 3)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)))


def training():
    """Train and evaluate; give all that a script could look at."""
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002 - the generator that scripts share
    model = Classifier().cuda()
    activations = []
    model.blocks.module.fc.register_forward_hook(lambda *given: activations.append(given[2].shape))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for rows in (16, 16, 6, 16, 6):
        inputs = torch.randn(rows, 4).cuda() + random.random()
        loss = nn.functional.cross_entropy(model.train()(inputs), torch.arange(rows).cuda() % 3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            losses += [loss.item(), model.eval()(inputs).sum().item()]
    tensors = [*model.state_dict().values(), *(parameter.grad for parameter in model.parameters())]
    return (
        losses,
        [tensor.tolist() for tensor in tensors],
        [module.training for module in model.modules()],
        activations,
        [torch.cuda.get_rng_state(gpu).tolist() for gpu in range(3)],
        torch.get_rng_state().tolist(),
        random.random(),
        np.random.rand(),  # noqa: NPY002
        [torch.cuda.max_memory_allocated(gpu) for gpu in range(3)],
    )


def ran(check, capsys, caplog):
    """Run the training, watched or not; give what it saw, what it wrote and what the GPUs held."""
    with virtual_gpus(3) as gpus, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with check.watching() if check else contextlib.nullcontext():
            seen = training()
        written = capsys.readouterr()
        logged = [record.getMessage() for record in caplog.records]
        caplog.clear()
        moved = gpus.bytes_moved
        return (
            seen,
            written.out,
            written.err,
            logged,
            [str(found_item.message) for found_item in warned],
            moved,
        )


def test_a_training_loop_sees_the_same_with_and_without_a_check(capsys, caplog):
    alone = ran(None, capsys, caplog)
    check = CallCheck()
    watched = ran(check, capsys, caplog)
    assert "a print of forward" in alone[1]
    assert "a log of forward" in alone[3]
    assert "a warning of forward" in alone[4]
    for without, within in zip(alone, watched, strict=True):
        assert without == within
    report = check.report()
    assert (codes(report), report.notes) == (set(), ())
    assert codes(report, "warning") == {"DP306", "DP310"}  # BatchNorm by chunks, and a hook of ours
    assert report.batch_sizes == (16, 6)


def counted(script, check, gpus=4):
    """Run a program as `exec` does, with or without a check; give its uses, and its copies."""
    torch.manual_seed(0)
    with virtual_gpus(gpus) as found, counting(check) as watch:
        with contextlib.suppress(Exception):
            script()
        return watch.uses(), found.bytes_moved


ALL_KINDS = [
    *[*TRIGGERS, *TWINS][::25],
    *(case for case in TRIGGERS if case.code == "DP602"),  # default devices: to read one must copy nothing
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", ALL_KINDS, ids=str)
def test_a_program_has_the_same_uses_and_copies_with_and_without_a_check(case):
    gpus = case.options.get("gpus", 4)
    alone = counted(lambda: script_of(case), None, gpus)
    assert alone[0]
    assert counted(lambda: script_of(case), CallCheck(), gpus) == alone


def test_replicas_called_by_hand_are_named_alike_with_and_without_a_check():
    class Teacher(Linear):
        def __init__(self):
            super().__init__()
            self.replica = nn.Linear(4, 3)  # no replica of ours

    def script():
        model = Teacher().cuda()
        chunks = [(chunk,) for chunk in nn.parallel.scatter(x(8).cuda(), [0, 1])]
        nn.parallel.parallel_apply(nn.parallel.replicate(model, [0, 1]), chunks)

    alone, checked = counted(script, None), counted(script, CallCheck())
    assert [(use.module, use.num_calls) for use in alone[0]] == [("Teacher", 1)]
    assert alone == checked


def test_frozen_batchnorm_stays_frozen_in_the_rehearsal():
    def script():
        model = nn.DataParallel(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).cuda())
        model.module[1].eval()
        model(x(8).cuda())

    assert report_on(script).findings == ()


def test_an_input_that_is_no_leaf_may_be_changed_in_place_on_one_gpu():
    """A leaf that wants gradients may not, and a chunk may not: a copy has to be what it stands for."""

    class Gate(Net):
        def forward(self, x):
            return self.fc(torch.relu_(x))

    def script():
        stem = nn.Linear(4, 4).cuda()
        with pytest.raises(RuntimeError, match=r"Scatter(Backward)? is a view"):
            nn.DataParallel(Gate().cuda())(stem(x(8).cuda()))

    report = report_on(script)
    assert (codes(report), report.notes) == ({"DP390"}, ())


def test_pythons_and_numpys_random_numbers_are_no_difference():
    class Scaled(Net):
        def forward(self, x):
            return self.fc(x) * random.random() * np.random.rand()  # noqa: NPY002

    report = report_on(lambda: nn.DataParallel(Scaled().cuda())(x(8).cuda()))
    assert report.codes == ("DP603",)


def test_a_model_with_dropout_is_compared_in_evaluation_too():
    """In training its numbers never compare, and a script may never evaluate it."""

    class Centred(Net):
        def forward(self, x):
            y = nn.functional.dropout(self.fc(x), 0.1, self.training)
            return y - y.mean(0)

    report = report_on(lambda: nn.DataParallel(Centred().cuda())(x(8).cuda()))
    assert codes(report) == {"DP502"}
    assert [found_item.seen_in for found_item in report.findings if found_item.code == "DP502"] == [
        ("batch 8, eval",)
    ]


def test_hooks_for_all_modules_are_not_called_in_the_rehearsal():
    calls = []

    def script():
        handle = nn.modules.module.register_module_forward_hook(lambda *_: calls.append(1))
        try:
            nn.DataParallel(nn.Linear(4, 3).cuda())(x(8).cuda())
        finally:
            handle.remove()

    report_on(script)
    assert len(calls) == 4 + 1  # the replicas, and the wrapper


def test_settings_of_the_thread_are_as_they_were_after_a_forward_that_leaves_them_changed():
    class Careless(Net):
        def forward(self, x):
            torch.cuda.set_device(x.device.index)
            torch.set_grad_enabled(False)
            return self.fc(x)

    def script():
        torch.cuda.set_device(2)
        nn.DataParallel(Careless().cuda(0))(x(8).cuda(0))
        assert (torch.cuda.current_device(), torch.is_grad_enabled()) == (2, True)

    report_on(script)


@pytest.mark.parametrize("setting", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_a_rehearsal_tracks_gradients_where_the_call_does(setting):
    modes = []

    class Noting(Net):
        def forward(self, x):
            modes.append(torch.is_grad_enabled())
            return self.fc(x)

    def script():
        with setting():
            nn.DataParallel(Noting().cuda())(x(8).cuda())

    report = report_on(script)
    assert modes == [setting is torch.enable_grad] * (1 + 4 + 4)  # on one GPU, on all, and the call itself
    assert (codes(report), report.notes) == (set(), ())


def test_a_warning_is_shown_as_often_as_without_a_check():
    def script():
        model = nn.DataParallel(nn.Linear(4, 3).cuda())
        for rows in (8, 7, 6):
            warnings.warn("once for this line", stacklevel=1)
            model(x(rows).cuda())

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        shown = []
        warnings.showwarning = lambda message, *_: shown.append(str(message))
        report_on(script)
    assert shown == ["once for this line"]


def test_calls_of_another_thread_are_no_part_of_a_rehearsal(capsys):
    """While one thread rehearses, another one's call prints, and is not compared with the first one's."""
    rehearsing, has_called = threading.Event(), threading.Event()

    class Waiting(Net):
        def forward(self, x):
            if not getattr(self, "_is_replica", False):
                rehearsing.set()
                assert has_called.wait(10)
            return self.fc(x)

    class Printing(Net):
        def forward(self, x):
            print("printed")
            return self.fc(x).sum(1)

    def script():
        waiting, printing = nn.DataParallel(Waiting().cuda()), nn.DataParallel(Printing().cuda())

        def call():
            assert rehearsing.wait(10)
            printing(x(8).cuda())
            has_called.set()

        thread = threading.Thread(target=call)
        thread.start()
        waiting(x(8).cuda())
        thread.join()

    report = report_on(script)
    assert capsys.readouterr().out == "printed\n" * 4
    assert codes(report) == set()
    assert report.notes == (
        "Printing was called while another thread's call was compared, and not compared itself",
    )
    assert set(report.model.split(", ")) == {"Waiting", "Printing"}


def test_all_calls_are_counted_and_each_kind_is_compared_although_threads_call_at_once():
    rehearsing, has_called = threading.Event(), threading.Event()

    class Waiting(Net):
        def forward(self, x):
            if is_rehearsing() and not rehearsing.is_set():
                rehearsing.set()
                assert has_called.wait(10)
            return self.fc(x)

    class Centred(Net):
        def forward(self, x):
            return self.fc(x) - self.fc(x).mean(0)

    with virtual_gpus(4), watching(is_rehearsing) as watch:
        check = CallCheck()
        waiting, centred = nn.DataParallel(Waiting().cuda()), nn.DataParallel(Centred().cuda())

        def call():
            assert rehearsing.wait(10)
            for _ in range(9):
                centred(x(8).cuda())
            has_called.set()

        thread = threading.Thread(target=call)
        with check.watching():
            thread.start()
            waiting(x(8).cuda())
            thread.join()
            centred(x(8).cuda())
        calls = {use.module: use.num_calls for use in watch.uses()}
    assert calls == {"Waiting": 1, "Centred": 10}
    assert (codes(check.report()), check.report().notes) == ({"DP502"}, ())


def test_an_input_on_the_cpu_is_not_changed_with_one_gpu_either():
    class Doubling(Net):
        def forward(self, x):
            return self.fc(x.mul_(2))

    assert report_on(lambda: nn.DataParallel(Doubling().cuda())(x(8))).codes == ()
    assert report_on(lambda: nn.DataParallel(Doubling().cuda())(x(8).cuda())).codes == ("DP210",)


class ImageAndBoxes(Net):
    """Takes a list [images, annotations] as a detector does; two tensors are no chunks of two GPUs."""

    def forward(self, given):
        images, boxes = given
        self.calls = len(images)
        return self.fc(images).sum() + boxes.sum()


@pytest.mark.filterwarnings("ignore:Was asked to gather along dimension 0")
@pytest.mark.parametrize(
    "given",
    [
        lambda: [x(4).cuda(), x(4)],
        lambda: [x(4), x(4).cuda()],
        lambda: (x(4).cuda(), x(4)),
        lambda: [x(4).cuda(), x(4).cuda()],
    ],
)
def test_a_list_of_a_gpus_tensor_and_a_hosts_is_compared_with_one_gpu(given):
    def script():
        wrapper = nn.DataParallel(ImageAndBoxes().cuda())
        for _ in range(2):
            wrapper(given()).sum().backward()

    report = report_on(script, 2)
    assert report.notes == ()
    assert "DP301" in report.codes  # `calls`, which only a comparison shows


def test_arguments_that_will_not_be_looked_at_do_not_stop_the_script():
    class Endless:
        def __len__(self):
            raise TypeError("endless")

    class Unknown:
        @property
        def __dict__(self):
            raise OSError("gone")

    class Constant(Net):
        def forward(self, _):
            return self.fc(torch.ones(8, 4, device=self.fc.weight.device))

    def script():
        model = nn.DataParallel(Constant().cuda())
        assert model(Endless()).shape == model(Unknown()).shape == (32, 3)

    report = report_on(script)
    assert [note for note in report.notes if "OSError: gone" in note]


def test_a_stream_that_forward_keeps_goes_on_after_the_rehearsal(capsys):
    kept = []

    class Keeping(Net):
        def forward(self, x):
            kept.append(sys.stdout)
            print("kept")
            return self.fc(x)

    report_on(lambda: nn.DataParallel(Keeping().cuda())(x(8).cuda()))
    assert capsys.readouterr().out == "kept\n" * 4
    for stream in kept:
        print("later", file=stream)
    assert capsys.readouterr().out == "later\n" * len(kept)


def test_a_model_that_cannot_be_copied_is_only_watched_and_the_report_says_so():
    class Streaming(Net):
        def __init__(self):
            super().__init__()
            self.source = (number for number in range(2))
            self.steps = 0

        def forward(self, x):
            self.steps += 1
            return self.fc(x), "text"

    def script():
        model = nn.DataParallel(Streaming().cuda())
        model(x(8).cuda())
        model(x(4).cuda())

    report = report_on(script)
    assert report.codes == ("DP403",)  # what a call itself shows
    (note,) = report.notes
    assert note.startswith("Streaming was not compared with one GPU: it cannot be copied (TypeError")


@pytest.mark.parametrize("error", [SystemExit, ValueError, RecursionError])
def test_what_is_raised_in_a_rehearsal_does_not_reach_the_script(error):
    class Once(Net):
        def forward(self, x):
            if not getattr(self, "_is_replica", False):
                raise error("only without DataParallel")
            return self.fc(x)

    def script():
        assert nn.DataParallel(Once().cuda())(x(8).cuda()).shape == (8, 3)

    report = report_on(script)
    (note,) = report.notes
    assert "only without DataParallel" in note
    assert report.findings == ()


def test_a_call_that_fails_on_one_gpu_too_is_no_finding():
    class Wrong(Net):
        def forward(self, x):
            return self.fc(x[:, :2])

    def script():
        with pytest.raises(RuntimeError, match="Caught RuntimeError in replica 0"):
            nn.DataParallel(Wrong().cuda())(x(8).cuda())

    report = report_on(script)
    assert report.findings == ()
    assert "at batch 8, train: there it raises RuntimeError: " in report.notes[0]
    assert "mat1 and mat2 shapes" in report.notes[0]


def test_lengths_that_only_a_plain_call_leaves_on_the_cpu_are_a_finding():
    def script():
        model = nn.DataParallel(Lengths().cuda())
        lengths = torch.tensor([6, 6, 5, 5, 4, 3, 2, 1])
        model.module(steps().cuda(), lengths)
        with pytest.raises(RuntimeError, match="1D CPU int64"):
            model(steps().cuda(), lengths)

    report = report_on(script)
    assert (codes(report), report.notes) == ({"DP215"}, ())


def test_lengths_that_a_script_moves_itself_are_no_finding():
    def script():
        with pytest.raises(RuntimeError, match="1D CPU int64"):
            nn.DataParallel(Lengths().cuda())(steps().cuda(), torch.full((8,), 6).cuda())

    report = report_on(script)
    assert codes(report) == set()
    assert "there it raises RuntimeError: 'lengths' argument" in report.notes[0]


def test_an_exception_of_a_replica_does_not_name_our_files():
    def script():
        with pytest.raises(RuntimeError) as caught:
            nn.DataParallel(nn.Linear(3, 3).cuda())(x(8).cuda())
        assert "Original Traceback" in str(caught.value)
        assert "dpdemo/checking" not in str(caught.value)

    report_on(script)


def test_an_interrupt_in_a_rehearsal_ends_the_script_and_leaves_nothing_behind():
    class Slow(Net):
        def forward(self, x):
            raise KeyboardInterrupt

    def script():
        model = nn.DataParallel(Slow().cuda())
        numbers, stdout = torch.get_rng_state(), sys.stdout
        with pytest.raises(KeyboardInterrupt):
            model(x(8).cuda())
        assert torch.equal(torch.get_rng_state(), numbers)
        assert sys.stdout is stdout
        assert logging.root.manager.disable == logging.NOTSET

    assert report_on(script).findings == ()


def test_only_so_many_kinds_of_calls_are_rehearsed_and_the_report_says_so(monkeypatch):
    monkeypatch.setattr(callcheck, "MAX_KINDS", 40)
    calls = []

    class Counting(Net):
        def forward(self, x, step):
            if not getattr(self, "_is_replica", False):
                calls.append(tuple(x.shape[:2]))
            return self.fc(x)

    def script():
        model = nn.DataParallel(Counting().cuda())
        for rows in range(4, 16):
            for length in (1, 2, 3, 4):  # the sentences of a batch have many lengths
                words = x(rows)[:, None].expand(-1, length, -1).cuda()
                model(words, rows)
                model(words, -rows)  # another number is no other kind

    report = report_on(script)
    assert calls == [(rows, length) for rows in range(4, 12) for length in (1, 2)]
    compared, watched = report.notes
    assert compared.endswith(
        "in calls of all shapes, but in 2 of each batch size and mode, and in 16 at most"
    )
    assert watched == "Counting was watched in calls of 40 kinds, and not in others"


def test_calls_of_one_kind_are_kept_once():
    with virtual_gpus(4):
        wrapper = nn.DataParallel(Linear().to("cuda:0"))
        check = CallCheck()
        with check.watching(), torch.no_grad():
            for rows in (16, 16, 8, 16):
                wrapper(x(rows))
    assert check.report().batch_sizes == (16, 8)
    (subject,) = check._subjects.values()
    assert len(subject.probes) == 2


@pytest.mark.filterwarnings("ignore:Was asked to gather")
def test_two_models_of_a_script_are_judged_each_by_itself():
    class Summing(Net):
        def forward(self, x):
            return self.fc(x).sum()

    def script():
        nn.DataParallel(Linear().cuda())(x(16).cuda())
        nn.DataParallel(Summing().cuda())(x(8).cuda()).sum().backward()
        nn.DataParallel(Counting().cuda())(x(8).cuda())

    report = report_on(script)
    assert codes(report) == {"DP301"}
    assert codes(report, "warning") == set()  # a sum of sums is what one GPU gives
    assert report.model == "Linear, Summing, Counting"
    assert report.batch_sizes == (16, 8)


def test_state_is_lost_behind_a_scatter_of_the_users_own_too():
    class Uneven(nn.DataParallel):
        def scatter(self, inputs, kwargs, device_ids):
            return [(inputs[0][:2].to("cuda:0"),), (inputs[0][2:].to("cuda:1"),)], [{}, {}]

    assert codes(report_on(lambda: Uneven(Counting().cuda())(x(8).cuda()))) == {"DP301"}


def test_a_dimension_counted_from_the_end_is_the_same_dimension():
    class Scaled(nn.Module):
        def forward(self, x, scale):
            return x * scale

    def script():
        model = nn.DataParallel(Scaled().cuda(), dim=-1)
        model(x(5).cuda(), 2.0)
        with pytest.raises(RuntimeError, match="chunk expects at least a 1-dimensional tensor"):
            model(x(5).cuda(), torch.tensor(2.0))

    report = report_on(script)
    assert (codes(report), report.notes) == ({"DP206"}, ())


def test_dataparallel_inside_dataparallel_is_one_finding():
    def script():
        inner = nn.DataParallel(nn.Linear(4, 4).cuda())
        with contextlib.suppress(RuntimeError):
            nn.DataParallel(nn.Sequential(inner, nn.Linear(4, 3)).cuda())(x(8).cuda())

    assert codes(report_on(script)) == {"DP106"}


@pytest.mark.parametrize("rows", [1, 8])
def test_a_text_is_garbled_by_a_lone_replica_too(rows):
    class Named(Net):
        def forward(self, x):
            return self.fc(x), "name"

    assert codes(report_on(lambda: nn.DataParallel(Named().cuda())(x(rows).cuda()))) == {"DP403"}


def test_a_load_that_matches_nothing_is_found():
    def script():
        wrapper = nn.DataParallel(Linear().cuda())
        wrapper.load_state_dict(Linear().state_dict(), strict=False)
        wrapper(x(8).cuda())

    assert report_on(script).codes == ("DP102",)


def test_a_script_on_one_gpu_has_nothing_to_compare():
    report = report_on(lambda: nn.DataParallel(Linear().cuda())(x(8).cuda()), gpus=1)
    assert (report.findings, report.nothing_found) == ((), "nothing was compared")
