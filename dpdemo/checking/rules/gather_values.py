"""Values that gather cannot join, or garbles: DP401 to DP403, DP407."""

import re
from collections.abc import Iterator

from dpdemo.checking.errors import tells
from dpdemo.checking.evidence import Call, Evidence, Leaf, Probe, RaisedError
from dpdemo.checking.fills import Names, bracketed, returned
from dpdemo.checking.questions.failures import gather_failures, numbers_for_tensors
from dpdemo.checking.questions.results import gathered_calls, is_meant_as_part, shapes_of, vectors
from dpdemo.checking.questions.words import article, result_at
from dpdemo.checking.registry import rule
from dpdemo.checking.repairs import FEATURES, Advice, Hit, advise, without
from dpdemo.results.findings import Severity


@rule("DP401", "scalar-output", "warning")
def scalar_output(evidence: Evidence) -> Iterator[Hit]:
    """A single number comes back as a vector, one number for each GPU.

    What happens: `grad can be implicitly created only for scalar outputs` at loss.backward(), `.item()`
        fails; with one
        GPU the same script works.
    Why: gather joins along the batch dimension, and gives numbers without dimensions one.
    Before: loss = model(x, y); loss.backward()
    After: loss = model(x, y).mean(); loss.backward()   # but see DP501
    Seen by: a result of one number on one GPU and of n under DataParallel.
    References: pytorch/pytorch#7956, pytorch/pytorch#9811
    """
    losses = {probe.comparison.loss_path for probe in evidence.probes}
    summed = {path for probe in evidence.probes for path in probe.comparison.summed}
    for probe, call in evidence.calls:
        # a program was seen to reduce its replicas' losses, or wants no gradients
        numbers = vectors(probe, call) if len(call.replicas) > 1 and not probe.is_programs else []
        numbers = [path for path in numbers if not (path in summed and is_meant_as_part(probe, path))]
        of_losses = [path for path in numbers if path in losses]
        others = [path for path in numbers if path not in losses]
        for subject, paths in (("loss", of_losses), ("scalar", others)):
            if paths:
                yield _one_for_each_gpu(subject, paths, probe, call, evidence)
    for probe, call, error in gather_failures(evidence):
        has_rows = any(shape for shapes in shapes_of(call).values() for shape in shapes)
        if tells("DP401", error) and not has_rows:
            what = f"a number cannot be gathered along dimension {call.dim}: {error.message}"
            yield Hit("", what, evidence.scan.result, probe, "error")


def _one_for_each_gpu(subject: str, paths: list[str], probe: Probe, call: Call, evidence: Evidence) -> Hit:
    """Report numbers that come back once for each GPU, and what makes one of them."""
    names = " and ".join(result_at(path) for path in paths[:3]) + " and more" * (len(paths) > 3)
    verb = "is one number" if len(paths) == 1 else "are one number each"
    of_the_batch = [path for path in paths if path in _of_the_batch(evidence)]
    told = (
        "their mean" if len(paths) == 1 or not of_the_batch else f"the mean of {result_at(of_the_batch[0])}"
    )
    mixed = f"; {told} is another number" if of_the_batch else ""
    what = f"{names} {verb} on one GPU, and {len(call.replicas)} here{mixed}"
    way, note = _reduction(probe, paths[0], evidence), "   # but see DP501" * (subject == "loss")
    before = "{call}{result}"
    advice = advise(before + ".{way}{note}", before=before, result=paths[0], way=way, note=note)
    if of_the_batch and subject == "scalar":
        advice = FEATURES
    symptoms = ("vector",) if subject == "loss" else ()
    return Hit(subject, what, evidence.scan.result, probe, advice=advice, symptoms=symptoms)


def _of_the_batch(evidence: Evidence) -> set[str]:
    """List the numbers that neither a sum nor a mean of equal chunks' gives: a perplexity, a maximum."""
    even = [probe for probe in evidence.probes if probe.split is not None and probe.split.is_even]
    plain = [probe for probe in even if not (probe.mode == "train" and probe.norms_batches)]
    return {path for probe in plain for path in probe.comparison.of_the_batch}


def _reduction(probe: Probe, path: str, evidence: Evidence) -> str:
    """Name what makes one number of the replicas': of counts the sum, of averages the mean."""
    summed = {path for other in evidence.probes for path in other.comparison.summed}
    number = next((leaf for leaf in probe.single.output if leaf.path == path), None)
    is_count = number is not None and "int" in number.dtype
    name = "sum" if path in summed or is_count else "mean"
    return f"{name}(0, keepdim=True)" if number is not None and number.shape else f"{name}()"


@rule("DP402", "output-type", "error")
def output_type(evidence: Evidence) -> Iterator[Hit]:
    """Forward returns something that gather cannot join.

    What happens: `TypeError: 'int' object is not iterable`, or something as obscure, after all replicas are
        through; of a defaultdict `first argument must be callable or None`.
    Why: gather joins tensors, inside tuples, lists and dicts, by `type(out)(items)`; everything else it takes
        for a sequence.
    Before: return y, 3
    After: return y, torch.full((len(y),), 3, device=y.device)
    Seen by: the types of replica 0's result, before gather.
    References: pytorch/pytorch#15994, pytorch/pytorch#41327, pytorch/pytorch#52597
    """
    allowed = ("Tensor", "Parameter", "NoneType", "str", "list", "tuple", "dict")
    joined = {path for probe in evidence.probes for path in probe.comparison.joined}
    for probe, call in gathered_calls(evidence, at_least=1):
        is_compared = probe.comparison.values_equal is not None or probe.single.used_random
        if call.gathered is not None and is_compared:
            continue  # it was joined: whether rightly, the numbers say, if need be those in evaluation
        known = {*joined, *numbers_for_tensors(probe, call)}
        odd: dict[str, list[Leaf]] = {}
        for leaf in call.replicas[0].output or ():
            if not leaf.is_tensor and leaf.type not in allowed and leaf.path not in known:
                odd.setdefault(leaf.type, []).append(leaf)
        for kind, leaves in odd.items():
            names = " and ".join(result_at(leaf.path) for leaf in leaves[:3]) + " and more" * (
                len(leaves) > 3
            )
            what = f"{names} {'is' if len(leaves) == 1 else 'are'} of type {kind}, which gather cannot join"
            yield Hit(leaves[0].path, what, evidence.scan.result, probe, advice=_joinable(leaves[0]))
    for probe, call, error in gather_failures(evidence):
        if error.type == "TypeError" and not _is_about_a_part(error, call):
            structure = next((replica.structure for replica in call.replicas if replica.structure), "")
            if found := re.search(r"(\w+)[{\[]", structure):
                kind = article(found[1])
                what = f"the result is or holds {kind}, which gather cannot build anew: {error.message}"
                advice = _plain_dict('"y": out["y"]', is_mapping="{" in structure)
                yield Hit("the result", what, evidence.scan.result, probe, advice=advice)


def _joinable(leaf: Leaf) -> Advice:
    """Advise what gather can join in the place of a number, or of an object."""
    if leaf.type in {"int", "float", "bool", "complex"}:
        full = "torch.full((len({x}),), {value}, device={x}.device)"
        fill = returned(lambda code, names: full.format(x=names["x"], value=code))
        return advise(full + "   # one for each sample", fill=fill, result=leaf.path, value=leaf.text)
    if leaf.fields:
        code = ", ".join(f'"{field}": out.{field}' for field in leaf.fields)
        return _plain_dict(code, result=leaf.path)
    return without(f"the {leaf.type}")


def _plain_dict(fields: str, result: str = "", *, is_mapping: bool = False) -> Advice:
    """Advise a plain dict in the place of an object, or of a dict of another class."""
    fill = returned(lambda code, _: f"dict({code})") if is_mapping else None
    after = "return {{{fields}}}   # a plain dict of tensors"
    return advise(after, fill=fill, fields=fields, result=result)


def _is_about_a_part(error: RaisedError, call: Call) -> bool:
    """Whether gather failed over what a container holds, such as a number, and not over the container."""
    kind = re.match(r"'(\w+)' object is not iterable", error.message)
    leaves = (leaf for replica in call.replicas for leaf in replica.output or ())
    return kind is not None and any(leaf.type == kind[1] and not leaf.is_tensor for leaf in leaves)


@rule("DP403", "garbled-string", "error")
def garbled_string(evidence: Evidence) -> Iterator[Hit]:
    """A text in the result is garbled.

    What happens: 'abc' comes back as '<map object at 0x7f...>', without a word.
    Why: gather calls `type(out)(map(...))` on everything it does not know, and str() takes anything.
    Before: return {"y": y, "names": ["a", "b"]}
    After: return {"y": y}   # keep the names outside
    Seen by: a text in a replica's result. A note where a program ran with the model of an installed package.
    References: pytorch/pytorch#62466, pytorch/pytorch#13447
    """
    severity: Severity | None = "info" if evidence.is_program and evidence.scan.is_installed else None
    for probe, call in gathered_calls(evidence, at_least=1):
        leaves = call.replicas[0].output or ()
        for leaf in leaves:
            if leaf.type == "str":
                came = next(
                    (text_leaf.text for text_leaf in call.gathered or () if text_leaf.path == leaf.path), ""
                )
                became = f" and comes back as {came[:14]!r}..." if came.startswith("<map") else ""
                path = _list_of_texts(leaf.path, leaves)
                what = f"{result_at(path)} is the text {leaf.text[:20]!r}{became}"
                subject = re.sub(r"\[\d+\]", "[i]", path)
                advice = without("texts")
                place, explains = evidence.scan.result, (f"result {path}",)
                yield Hit(subject, what, place, probe, severity, advice, explains=explains)


def _list_of_texts(path: str, leaves: tuple[Leaf, ...]) -> str:
    """Return the path of the list that a text is in, if there are nothing but texts in it."""
    parent = re.sub(r"\[\d+\]$", "", path)
    inside = [leaf for leaf in leaves if leaf.path.startswith(f"{parent}[")]
    return parent if all(leaf.type == "str" for leaf in inside) else path


@rule("DP407", "cpu-output", "error")
def cpu_output(evidence: Evidence) -> Iterator[Hit]:
    """A result is on the CPU.

    What happens: `AssertionError: Gather function not implemented for CPU tensors`, after all replicas are
        through.
    Why: gather joins tensors of GPUs only.
    Before: return y.cpu()
    After: return y   # and .cpu() after the call
    Seen by: the device of each replica's result, before gather.
    References: amdegroot/ssd.pytorch#570
    """
    for probe, call in gathered_calls(evidence, at_least=1):
        for leaf in call.replicas[0].output or ():
            if leaf.device == "cpu":
                what = f"{result_at(leaf.path)} is on the CPU"
                advice = advise(
                    "{call}{result}.cpu()   # after the call, not in forward",
                    fill=returned(_on_its_gpu),
                    result=leaf.path,
                )
                yield Hit(leaf.path, what, evidence.scan.result, probe, advice=advice)


def _on_its_gpu(code: str, names: Names) -> str:
    """Remove the move of a result to the CPU, or move it back."""
    stays = re.sub(r"\.cpu\(\)|\.to\([\"']cpu[\"']\)", "", code)
    return stays if stays != code else f"{bracketed(code)}.to({names['x']}.device)"
