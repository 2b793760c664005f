"""The pytest plugin, in sessions of their own: `pytest --virtual-gpus`, the marker and the fixture."""

import sys
import tomllib
from pathlib import Path

import pytest
from processes import needs_no_gpu, run

pytest_plugins = ("pytester",)

ROOT = Path(__file__).parent.parent


@pytest.fixture
def session(pytester, monkeypatch):
    """Run a test session with the plugin, and no other, as a process of its own."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeini("[pytest]\naddopts = --strict-markers -p no:cacheprovider\nfilterwarnings = error")

    def run(*arguments, **files):
        if files:
            pytester.makepyfile(**files)
        return pytester.runpytest_subprocess("-p", "dpdemo.pytest_plugin", *arguments)

    return run


MULTI_GPU = """
    import pytest
    import torch
    from torch import nn

    @pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
    @pytest.mark.parametrize("rows", [[2, 2], [2, 1], [1]])
    def test_it_splits(rows):
        seen = []
        class Model(nn.Linear):
            def forward(self, x):
                seen.append((len(x), str(x.device)))
                return super().forward(x)
        out = nn.DataParallel(Model(3, 2)).cuda()(torch.randn(sum(rows), 3))
        assert seen == [(n, f"cuda:{i}") for i, n in enumerate(rows)]
        assert out.device == torch.device("cuda:0")

    def test_it_counts():
        assert torch.cuda.device_count() == EXPECTED
"""


@pytest.mark.slow
@needs_no_gpu
def test_workers_of_xdist_have_the_gpus_too(session):
    done = session(
        "-p", "xdist.plugin", "-n", "2", "--virtual-gpus", "2", test_it=MULTI_GPU.replace("EXPECTED", "2")
    )
    done.assert_outcomes(passed=4)


MARKED = """
    import pytest
    import torch

    @pytest.fixture
    def made():
        assert torch.cuda.device_count() == 4
        yield torch.ones(1000, device="cuda:3")
        assert torch.cuda.device_count() == 4

    @pytest.mark.virtual_gpus(4)
    def test_marked(made, virtual_gpus):
        assert len(virtual_gpus) == 4
        assert made.device == torch.device("cuda:3")
        assert virtual_gpus.live_bytes(3) == 4096

    def test_plain():
        assert not torch.cuda.is_available()

    @pytest.mark.virtual_gpus(1)
    class TestMany:
        def test_fails(self):
            assert torch.cuda.device_count() == 1
            raise ValueError("on purpose")

        @pytest.mark.virtual_gpus(2)
        def test_nearest(self):
            assert torch.cuda.device_count() == 2

    def test_plain_after_a_failure():
        assert not torch.cuda.is_available()
"""


@needs_no_gpu
def test_without_the_option_marked_tests_alone_have_gpus_from_before_their_fixtures_until_after_them(session):
    done = session(test_marked=MARKED, test_it=MULTI_GPU.replace("EXPECTED", "0"))
    done.assert_outcomes(passed=4 + 1, failed=1, skipped=3)
    done.stdout.fnmatch_lines(["*ValueError: on purpose*"])
    done.stdout.no_fnmatch_line("*virtual GPUs:*")


@needs_no_gpu
def test_a_whole_session_runs_on_virtual_gpus_but_a_marked_test_on_its_own(session):
    done = session(
        "--virtual-gpus",
        "2",
        conftest="import torch\nCOUNT = torch.cuda.device_count()",
        test_it=MULTI_GPU.replace("EXPECTED", "2"),
        test_marked="""
        def test_conftest():
            from conftest import COUNT
            assert COUNT == 2

        import pytest, torch
        KEPT = torch.arange(3.0, device="cuda:1")

        @pytest.mark.virtual_gpus(2)
        def test_same(virtual_gpus):
            assert len(virtual_gpus) == torch.cuda.device_count() == 2
            assert virtual_gpus.live_bytes(1) == 512

        @pytest.fixture
        def made():
            yield torch.ones(2, device="cuda:3")
            assert torch.cuda.device_count() == 4

        @pytest.mark.virtual_gpus(4)
        def test_more(virtual_gpus, made):
            assert len(virtual_gpus) == torch.cuda.device_count() == 4
            assert virtual_gpus.live_bytes(3) == 512
            with torch.autocast("cuda"):
                square = torch.ones(2, 2, device="cuda:3")
                assert (square @ square).dtype == torch.float16
            raise ValueError("on purpose")

        @pytest.mark.virtual_gpus(0)
        def test_none():
            assert not torch.cuda.is_available()

        @pytest.mark.virtual_gpus(0)
        def test_none_to_ask(virtual_gpus):
            pass

        @pytest.mark.virtual_gpus(2, memory="1MiB", card="T4")
        def test_small():
            assert torch.cuda.get_device_name() == "Tesla T4"
            with pytest.raises(torch.OutOfMemoryError):
                torch.ones(10**6, device="cuda")

        def test_after(virtual_gpus):
            assert torch.cuda.device_count() == 2
            assert KEPT.device == torch.device("cuda:1")
            assert (KEPT + 1).tolist() == [1, 2, 3]
            assert virtual_gpus.live_bytes(1) == 512

        def test_much(virtual_gpus):
            torch.ones(10**6, device="cuda")
            assert virtual_gpus.peak_bytes(0) >= 4 * 10**6

        def test_peaks_start_again(virtual_gpus):
            assert virtual_gpus.peak_bytes(0) < 10**6
        """,
    )
    done.assert_outcomes(passed=4 + 7, failed=1, errors=1)
    done.stdout.fnmatch_lines(
        ["virtual GPUs: 2 (dpdemo)", "*expected virtual GPUs, got none*", "*ValueError: on purpose*"]
    )


@needs_no_gpu
def test_a_mark_for_no_gpus_needs_no_session(session):
    test = (
        "import pytest, sys\n@pytest.mark.virtual_gpus(0)\ndef test_it(): assert 'torch' not in sys.modules"
    )
    session(test_it=test).assert_outcomes(passed=1)


def test_a_wrong_marker_is_an_error_of_its_test(session):
    markers = ["", "(2, 3)", "('2')", "(-1)", "(True)", "(n=2)", "(2, seed=1)"]
    tests = [f"@pytest.mark.virtual_gpus{marker}\ndef test_{i}(): pass" for i, marker in enumerate(markers)]
    done = session(test_it="\n".join(["import pytest", *tests]))
    done.assert_outcomes(errors=len(markers))
    for given in ("()", "(2, 3)", "('2')", "(-1)", "(True)", "(n=2)", "(2, seed=1)"):
        done.stdout.fnmatch_lines([f"@pytest.mark.virtual_gpus: expected a number of 0 or more,*got {given}"])


def test_the_fixture_without_gpus_says_how_to_have_them(session):
    done = session(test_it="def test_it(virtual_gpus): pass")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["*expected virtual GPUs, got none; mark the test with*"])


def test_a_bad_number_is_a_usage_error_of_pytest(session):
    done = session("--virtual-gpus", "0", test_it="def test_it(): pass")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*ERROR: --virtual-gpus: *expected a number from 1 to 128, got 0*"])


def test_installed_but_not_asked_for_it_imports_no_torch(session):
    done = session(
        test_it="""
        import sys
        def test_it():
            assert not {"torch", "typer", "rich", "dpdemo.virtual", "dpdemo.cli"} & set(sys.modules)
            assert "dpdemo.pytest_plugin" in sys.modules
        """,
    )
    done.assert_outcomes(passed=1)


def test_the_marker_is_explained(session):
    session("--markers").stdout.fnmatch_lines(
        ["@pytest.mark.virtual_gpus(n, **options): run the test on n virtual GPUs*"]
    )


def test_the_session_leaves_nothing_behind_in_the_process():
    code = """
import sys, pytest, torch
before = torch.Tensor.to, torch.cuda.device_count()
pytest.main(["-p", "dpdemo.pytest_plugin", "--virtual-gpus", "2", "-p", "no:cacheprovider", "/dev/null"])
assert (torch.Tensor.to, torch.cuda.device_count()) == before
"""
    env = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "CUDA_VISIBLE_DEVICES": ""}
    run([sys.executable, "-c", code], check=True, env=env)


def test_the_package_declares_the_plugin():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"dpdemo": "dpdemo.pytest_plugin"}


SPAWN = """
    import pytest
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp

    def main(rank, size, file):
        dist.init_process_group("nccl", init_method=f"file://{file}", rank=rank, world_size=size)
        torch.cuda.set_device(rank)
        ones = torch.ones(2, device="cuda")
        dist.all_reduce(ones)
        assert ones.tolist() == [size, size] and ones.device.index == rank
        dist.destroy_process_group()

    @pytest.mark.virtual_gpus(2)
    @pytest.mark.filterwarnings("ignore")
    def test_spawn(tmp_path):
        mp.spawn(main, (2, tmp_path / "store"), nprocs=2)
"""


@pytest.mark.slow
def test_spawned_ranks_have_the_gpus_too(session):
    session(test_it=SPAWN).assert_outcomes(passed=1)


@pytest.mark.slow
def test_a_test_whose_ranks_wait_for_each_other_fails_and_says_where(session):
    apart = SPAWN.replace("dist.all_reduce(ones)", "dist.recv(ones, 0) if rank else dist.all_reduce(ones)")
    done = session(test_it=apart)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        [
            "The ranks wait for each other; NCCL would hang:",
            "  rank 0: all_reduce #1 of * float32 at test_it.py:*",
            "  rank 1: recv #1 from rank 0 of * float32 at test_it.py:*",
        ]
    )


@needs_no_gpu
def test_a_failing_test_shows_its_own_lines_and_no_frame_of_dpdemo(session):
    test = """
        import torch
        from torch import nn

        class Net(nn.Linear):
            def forward(self, x):
                return super().forward(x) * torch.ones(2).cuda(0)

        def test_clash():
            torch.ones(2).cuda(0) + torch.ones(2).cuda(1)

        def test_in_a_replica():
            nn.DataParallel(Net(3, 2)).cuda()(torch.ones(4, 3))
    """
    done = session("--virtual-gpus", "2", test_it=test)
    done.assert_outcomes(failed=2)
    text = done.stdout.str()
    assert text.count("found at least two devices") >= 2
    assert "return super().forward(x) * torch.ones(2).cuda(0)" in text
    assert str(ROOT / "dpdemo" / "virtual") not in text
    assert "dpdemo/virtual" not in text
    assert "dpdemo/virtual" in session("--virtual-gpus", "2", "--full-trace").stdout.str()
