"""Command lines of people who have not read the help: each works, or gets a hint at the right one."""

import pytest

FILES = {
    "model.py": "from torch import nn\nclass Net(nn.Sequential):\n    def __init__(self):\n"
    "        super().__init__(nn.Linear(8, 2))\n",
    "two.py": "from torch import nn\nclass A(nn.Linear): ...\nclass B(nn.Linear): ...\n",
    "pair.py": "from torch import nn\ndef broken(): undefined\ndef make(): return nn.Bilinear(8, 8, 2)\n",
    "train.py": "import torch\ntorch.ones(1, device='cuda')\n",
    "four.yaml": "batch_size: 64\ngpus: 4\n",
    "typo.yaml": "batchsize: 64\n",
    "broken.yaml": "a: [1\n",
    "notes.txt": "hello\n",
}
UNDERSTOOD = [
    ("simulate 8", "Predicted: linear over 8 GPUs"),
    ("simulate -g 8", "Predicted: linear over 8 GPUs"),
    ("simulate --gpus=8 --batch-size=64", "batch size 64"),
    ("simulate 8 --batch_size 64", "batch size 64"),
    ("simulate 8 --drop_last", "Batches 1–3"),
    ("simulate --gpus 2,2", "as 2 replicas over 1 GPU"),
    ("simulate --gpus 0-3", "cuda:0–3"),
    ("simulate --gpus 3,", "cuda:3"),
    ("simulate -c four.yaml", "over 4 GPUs"),
    ("simulate -c four.yaml 8", "over 8 GPUs"),
    ("simulate 8 --strategy DDP", "Global batch"),
    ("simulate 8 --format JSON", '"command": "simulate"'),
    ("simulate 8 --model model.py:Net", "dpdemo run --virtual --gpus 8 --model model.py:Net"),
    ("help simulate", "Usage: dpdemo simulate"),
    ("help train.py", "Usage: dpdemo doctor"),
    ("check --explain lost-state", "DP301 lost-state"),
    ("init new/folder", ""),
    ("run 3 --virtual", "Observed: linear over 3 virtual GPUs"),
    ("explain 2 --virtual", "over 2 virtual GPUs"),
    ("check model.py", "no pitfalls"),
    ("check linear -g 2", "on 2 virtual GPUs"),
    ("model.py --gpus 2", "Doctor: model.py over 2 GPUs"),
    ("--gpus 2 model.py:Net", "Doctor: model.py:Net over 2 GPUs"),
    ("doctor model.py:Net -g 2", "Doctor: model.py:Net over 2 GPUs"),
    ("speedup linear --link PCIe4 --gpus 4", "over pcie4"),
]  # fmt: skip
ANSWERED = [
    ("simulate --gpu 8", "(Possible options: --gpus)"),
    ("simulate --gpus cuda:0,cuda:1", "write the ordinals alone: `--gpus 0,1`"),
    ("run my.yaml", "pass a config as `--config my.yaml`"),
    ("simulate model.py:Net", "pass a model as `--model model.py:Net`"),
    ("simulate --gpus all", "say how many GPUs to preview: --gpus 8"),
    ("simulate 8 --batch 64", "No such option: --batch"),
    ("simulate 8 --set dtype=half", "expected one of float32, float64, bfloat16, float16"),
    ("simulate 8 --format md", "Invalid value for '--format'"),
    ("simulate 8 --save out.png", "try --save out.svg"),
    ("simulate 8 --save .", "try --save report.svg"),
    ("simulate 8 --fail-on idel", "did you mean `idle`?"),
    ("simulate 8 --model resnet50", "for one of a library `torchvision:resnet50`"),
    ("simulate 8 --model liner", "did you mean `linear`?"),
    ("simulate 8 --model nofile.py:Net", "got `nofile.py`, which does not exist - at option `--model`"),
    ("simulate -c missing.yaml", "expected a YAML file, got none - at missing.yaml"),
    ("simulate -c typo.yaml", "did you mean `batch_size`?"),
    ("simulate -c broken.yaml", "expected YAML, got broken YAML"),
    ("simulate -c notes.txt", "expected a mapping of config keys"),
    ("simulat 8", "Did you mean 'simulate'?"),
    ("help nosuch", "No such command 'nosuch'"),
    ("init one two", "unexpected extra argument"),
    ("notes.txt", "No such command 'notes.txt'"),
    ("check", "expected a model as `model.py:Net` or `pkg.mod:Net`, got nothing"),
    ("check two.py", "name one: `two.py:A`"),
    ("check --traceback nosuch", "got 'nosuch': No such file or directory - at option `--traceback`"),
    ("check two.py:C", "it has A, B"),
    ("check nofile.py", "got `nofile.py`, which does not exist"),
    ("check model", "or `pkg.mod:Net`, got `model` - at argument TARGET"),
    ("check pair.py:broken --input 8x4", "NameError"),
    ("check pair.py:make", "expected inputs for the model, got none, and its layers do not tell"),
    ("check model.py:Net --input 8x5", "expected Net to run with these inputs on one GPU"),
    ("check model.py:Net --gpus 1", "expected 2 to 128 GPUs, got 1"),
    ("check model.py:Net --select DP20x", "at option `--select`"),
    ("check model.py:Net --input 32x8x", "expected [NAME=]SHAPE[:TYPE[<N]] such as 32x128"),
    ("check --explain DP301 --save a.json", "got both - at option `--explain` and option `--save`"),
    ("check --list --format json", "got both - at option `--list` and option `--format`"),
    ("check --traceback - model.py", "got both - at option `--traceback` and argument TARGET"),
    ("check --explain DP999", "`dpdemo check --list` lists all rules"),
    ("check model.py --gpus 0", "at option `--gpus`"),
    ("memory model.py:Net", "say how many: --gpus 4"),
    ("memory linear --gpus 2 --fit", "--gpu-memory 24GiB, or --gpu A100-80GB"),
    ("memory linear --gpus 2 --loss mes", "did you mean `mse`?"),
    ("speedup linear", "expected a number of GPUs, got none - at option `--gpus`"),
    ("speedup nosuch --gpus 2", "got 'nosuch' - at "),
    ("speedup linear --gpus 2 --link nvlnk3", "did you mean `nvlink3`?"),
    ("exec nofile.py", "got 'nofile.py', which does not exist"),
    ("init .", "expected a folder without dpdemo.yaml and model.py, got model.py there"),
    ("memory --gpus 4 --gpu B52", "expected a card such as A100-80GB, got 'B52': did you mean"),
    ("memory --gpus 4 --reserve lots", "got 'lots' - at option `--reserve` hint: KiB, MiB"),
    ("memory --gpus 4 timm:x --model cnn", "got both - at argument TARGET and option `--model`"),
    ("memory --gpus 4 --gpu-memory lots", "got 'lots' - at option `--gpu-memory` hint: KiB, MiB"),
    ("memory --gpus 4 --gpu-memory 1GiB,2GiB", "one for each of the 4 GPUs, got 2 sizes - at option"),
    ("memory --gpus 4 --input 8x5 --inputs a:b", "got both - at option `--input` and option `--inputs`"),
    ("memory --gpus 4 --input 0x5", "expected a batch of 1 or more, got '0x5' - at option `--input`"),
    ("memory --gpus 4 --inputs nothing", "`pkg.mod:function`, got 'nothing' - at option `--inputs`"),
    ("memory --gpus 4 --inference --optimizer sgd", "at option `--inference` and option `--optimizer`"),
    ("memory --gpus 4 --optimizer lion", "Invalid value for '--optimizer'"),
    ("memory --gpus 4 --strategy zero", "some of dp, ddp, fsdp2, got 'zero'"),
    ("memory --gpus 4 --seq-len 9999999999999999999999999", "- at option `--seq-len`"),
    ("speedup cnn --link pcie4 --bandwidth 20GB/s", "got both - at option `--link` and option `--bandwidth`"),
    ("speedup cnn --gpus 2 --bandwidth 20GB", "expected bytes per second such as 20GB/s, from 1MB/s to"),
    ("speedup cnn --gpus all", "expected a count such as 4, got `all` - at option `--gpus`"),
    ("exec --gpus 2 .", "expected a script, got the directory '.' without a `__main__.py`"),
    ("exec --gpus 2 -m nowhere", "expected a module, got 'nowhere': there is no `nowhere`"),
    ("exec --gpus 2", "Missing argument 'SCRIPT [ARGS]'"),
    ("exec --gpus all x.py", "expected a count such as 8, got 'all' - at option `--gpus`"),
    ("exec --gpus 2,3 x.py", "--gpus 4 for a program that names cuda:3, --gpus 2 for one that takes"),
    ("exec --gpus 2 --save r.xyz train.py", "got 'r.xyz'"),
    ("exec --gpus 2 --gpu-memory 24XB train.py", "expected a size such as 24GiB or 512MiB, got '24XB'"),
    ("exec --ranks 2 --select DP1 train.py", "expected `--check` beside it, got none - at option `--sel"),
    ("exec --gpus 2 --lr 3 x.py", "No such option: --lr"),
    ("run --batch-size abc", "Invalid value for '--batch-size'"),
    ("run --data-size 99999999999999999999", "got 99999999999999999999 - at option `--data-size`"),
    ("run --model nowhere:factory", "expected an importable module `nowhere`, got ModuleNotFoundError"),
    ("run --set dim=7", "expected dimension 0 or 1, got 7 - at option `--set dim`"),
    ("run --quiet --verbose", "got both - at option `--quiet` and option `--verbose`"),
    ("run 2 --gpus 4", "got both - at argument GPUS and option `--gpus`"),
    ("run --timeout soon", "Invalid value for '--timeout'"),
    ("run extra", "got 'extra' - at argument GPUS hint: separate ordinals"),
    ("run c.yaml --gpus 3", "got 'c.yaml' - at argument GPUS hint: pass a config as `--config c.yaml`"),
    ("explain cnn --gpus 3", "got 'cnn' - at argument GPUS hint: pass a model as `--model cnn`"),
    ("simulate zz", "got 'zz' - at argument GPUS"),
    ("run --timeout 5", "expected `--strategy ddp` beside it, got none - at option `--timeout`"),
    ("page --model cnn", "No such option: --model"),
    ("memory linear --gpus 2 --data-size 7", "No such option: --data-size"),
    ("memory linear --gpus 2 --seq-len 4", "the model of a library for it, got `linear` - at option `--seq"),
    ("check --list --explain DP301", "got both - at option `--explain` and option `--list`"),
    ("check --list --gpus 3", "got both - at option `--list` and option `--gpus`"),
    ("check --traceback - --input 8x4", "got both - at option `--traceback` and option `--input`"),
    ("check linear --input 8x5 --batch-size 9999999999999999999999999", "- at option `--batch-size`"),
    ("simulate 2 --set trace_sample=100", "one of the 100 samples, 0 to 99, got 100 - at option"),
    ("simulate 2 --set seed", "expected KEY=VALUE, got 'seed' - at option `--set`"),
    ("simulate 2 --set sede=1", "got `sede` - at option `--set` hint: did you mean `seed`?"),
    ("simulate 2 --batch-size 3 --set batch-size=3", "expected `batch_size` once, got it twice"),
    ("simulate 2 --seed 7", "did you mean `--set seed=`?"),
    *((f"simulate 2 {typed}", f"beside it, got none - at option `{typed.split()[0]}` hint: add --lengths")
      for typed in ("--group-by-length", "--sort", "--pack 5", "--pad-to 5", "--accumulate 2")),
    *((f"{command} --save r.pdf", "expected a file ending in .svg, .html, .txt, .json, .csv or .md")
      for command in ("run", "memory linear")),
    *((f"{command} --save r.csv", "expected a file ending in .svg, .html, .txt or .json")
      for command in ("explain", "doctor linear")),
    ("check linear --save r.csv", "expected a file ending in .svg, .html, .txt, .json or .sarif"),
    *((f"{command} -f markdown", "Invalid value for '--format'")
      for command in ("explain", "check linear", "doctor linear")),
    ("doctor linear cnn", "expected one model, got 2 words"),
    ("explain -f transcript", "Invalid value for '--format'"),
    ("init model.py", "expected a folder, or a place for one, got 'model.py'"),
    ("simulate 2 --fail-on token-balance<1", "expected `--lengths` beside `token-balance`, got none"),
    ("explain --set strategy=ddp", "ddp is not supported here - at option `--set strategy` hint: leave"),
]  # fmt: skip


@pytest.fixture
def folder(users_folder):
    return users_folder(FILES)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("line", "said"), UNDERSTOOD, ids=[line for line, _ in UNDERSTOOD])
def test_a_line_is_understood(dpdemo, line, said):
    done = dpdemo(*line.split())
    assert (done.code, said in " ".join(done.out.split())) == (0, True), done.err


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("line", "said"), ANSWERED, ids=[line for line, _ in ANSWERED])
def test_wrong_line_is_answered(dpdemo, line, said):
    done = dpdemo(*line.split())
    assert (done.code, done.out) == (2, "")
    assert said in " ".join(done.err.split())
    assert "\nhint: " in done.err or done.err.startswith("Usage: ")  # always a next step
    assert "Traceback" not in done.err
