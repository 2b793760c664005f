"""The table of repairs: an example for each advice, and a fill for the lines that can be rewritten."""

from typing import NamedTuple

from dpdemo.checking.fills import (
    Fill,
    after_the_call,
    as_buffer,
    as_modules,
    bracketed,
    on_inputs_device,
    on_its_gpu,
    returned,
    statement,
    swapped,
)


class Template(NamedTuple):
    """One advice."""

    after: str
    """The worked example, with names in braces."""
    before: str = ""
    """The code that the example replaces; "" for the user's own line."""
    fill: Fill | None = None
    """Rewrites the user's line; "" where the line is of another form."""


TEMPLATES: dict[str, Template] = {
    "buffer": Template(
        "self.{name}.to({x}.device)   # where it is used; or register it as a buffer", fill=as_buffer
    ),
    "modules": Template('getattr(self, "name")   # on self, keep the name of what is used', fill=as_modules),
    "registered": Template(
        "self.part = part   # in __init__: a registered module, of which each replica has a copy"
    ),
    "named": Template('self.{name} = {{"fc": value}}   # by name: it is the same in every replica'),
    "looked up": Template('getattr(self.part, "weight")   # in forward, where it is used'),
    "function": Template(
        "functional_call(self.part, weights, ({x},))   # a module that is registered: self.part = ..."
    ),
    "device": Template("device={x}.device   # of a tensor that came with the chunk", fill=on_inputs_device),
    "context": Template("ctx.save_for_backward({x})   # and in backward: ({x},) = ctx.saved_tensors"),
    "outside": Template(
        "return y, value   # in forward; and after the call, on what was gathered:\n"
        "model.module.{path} = value",
        fill=after_the_call,
    ),
    "of all rows": Template(
        "y = {call}   # forward returns the rows that it is made of\n"
        "model.module.{path} = ...   # after the call, of all of them",
        fill=after_the_call,
    ),
    "number": Template(
        "y = {call}\nmodel.module.{path} = ...   # after the call; forward may take it as an argument",
        fill=after_the_call,
    ),
    "in place": Template(
        "with torch.no_grad():   # after the call, on what was gathered\n    {there} ...", fill=after_the_call
    ),
    "update": Template(
        "model.module.update()   # these lines, in a method that is called after the call or the step"
    ),
    "mode": Template("{module}.eval()   # outside of forward"),
    "own": Template("{name} = {empty}   # in forward, one for each call; return what must stay"),
    "key": Template("{name}[(key, {x}.device)]   # a key that names the GPU, where it is read and written"),
    "by device": Template("self.{name}[(key, {x}.device)]   # an entry of each GPU's own"),
    "sum": Template("loss = {call}{result}.sum()", "loss = {call}{result}.mean()"),
    "sum and count": Template(
        "return total.reshape(1), count.reshape(1)   # in forward: the sum of the losses, and of how many\n"
        "total, count = {call}   # outside\n"
        "loss = total.sum() / count.sum()",
        "loss = {call}{result}.mean()",
    ),
    "loss outside": Template(
        "features = {call}   # forward returns what the loss is computed from\nloss = criterion(features)",
        "loss = {call}{result}.mean()",
    ),
    "trainer": Template(
        "TrainingArguments(folder, average_tokens_across_devices=False)", "TrainingArguments(folder)"
    ),
    "trainer's loss": Template(
        "Trainer(model, args, compute_loss_func=total_loss)   # which divides the sum of the losses\n"
        "# of all labels by num_items_in_batch.sum()",
        "Trainer(model, args)",
    ),
    "full batches": Template(
        "DataLoader(data, batch_size={full}{drop})", "DataLoader(data, batch_size={size})"
    ),
    "reduce": Template("{call}{result}.{way}{note}", "{call}{result}"),
    "dim": Template("nn.DataParallel(model{better})", "nn.DataParallel(model{dim})"),
    "turned": Template(
        "return out{turn}   # in forward, and the same again outside",
        fill=returned(lambda code, names: f"{bracketed(code)}{names['turn']}", "   # and back outside"),
    ),
    "on its gpu": Template(
        "{call}{result}.cpu()   # after the call, not in forward", fill=returned(on_its_gpu)
    ),
    "full": Template(
        "torch.full((len({x}),), {value}, device={x}.device)   # one for each sample",
        fill=returned(
            lambda code, names: f"torch.full((len({names['x']}),), {code}, device={names['x']}.device)"
        ),
    ),
    "plain dict": Template(
        "return {{{fields}}}   # a plain dict of tensors",
        fill=returned(lambda code, names: f"dict({code})" if names["is_mapping"] else ""),
    ),
    "without": Template("return y   # without {what}, which is known outside"),
    "in all": Template("return y, aux   # in every replica the same parts: zeros where there is nothing"),
    "padded": Template(
        "y = F.pad(y, (0, longest - y.size(-1)))   # to a length that does not depend on the chunk"
    ),
    "rows and counts": Template(
        "return torch.cat(rows), torch.tensor([len(one) for one in rows], device={x}.device)\n"
        "rows, counts = {call}\n"
        "rows = rows.split(counts.tolist())   # outside"
    ),
    "features": Template(
        "return h   # in forward: what has a row for each sample\nh = {call}; ...   # outside, on all rows"
    ),
    "before the call": Template("{code}   # before the call"),
    "constant": Template(
        'self.register_buffer("{name}", {name})   # in __init__; forward reads self.{name}', "{call}"
    ),
    "total_length": Template("pad_packed_sequence(packed, batch_first=True, total_length={x}.size(1))"),
    "lengths": Template(
        "pack_padded_sequence({x}, lengths.cpu())",
        fill=swapped(r"(pack_padded_sequence\([^,]+,\s*[\w.\[\]]+)", r"\1.cpu()"),
    ),
    "state": Template(
        "h = torch.zeros(layers, {x}.size(0), hidden, device={x}.device)   # made in forward, of its chunk"
    ),
    "told of each other": Template(
        "patch_replication_callback(dp)   # of the same package; or its DataParallelWithCallback",
        "dp = nn.DataParallel(model)",
    ),
    "group norm": Template(
        "nn.GroupNorm({groups}, {channels})",
        "nn.{type}({channels})",
        fill=swapped(
            r"\b(nn\.)?(?:Sync)?BatchNorm(?:1d|2d|3d)?\({channels}\)", r"\1GroupNorm({groups}, {channels})"
        ),
    ),
    "to its device": Template("....to({x}.device)   # every tensor but the inputs, where it is used"),
    "batch first": Template(
        "out.transpose(0, 1).reshape(-1, out.size(-1))   # and what it is compared with likewise",
        fill=swapped(r"\.(view|reshape)\(-1", ".transpose(0, 1).reshape(-1"),
    ),
    "made here": Template(
        "torch.ones(3, device={x}.device)   # each tensor that is made in forward",
        fill=swapped(
            r"(torch\.(?:zeros|ones|full|empty|arange|randn|rand|tensor|eye)\([^()]*)\)",
            r"\1, device={x}.device)",
        ),
    ),
    "any rows": Template(
        "{x}.size(0)   # the rows of this chunk, where the line counts on those of the batch"
    ),
    "on self": Template("self.weight_{name}   # an attribute of the module; set it in __init__"),
    "of a parameter": Template(
        "{x}.device   # or {parameter}.device; penalties over all parameters belong outside forward",
        fill=swapped(r"next\((?:iter\()?self\.parameters\(\)\)?\)", "{parameter}"),
    ),
    "clone": Template(
        "{name} = {name}.clone()   # before it is changed in place",
        fill=lambda line, names: (
            f"{names['name']} = {names['name']}.clone()\n{line}" if statement(line) else ""
        ),
    ),
    "autocast": Template(
        "@torch.autocast({kind})   # above def forward",
        "with torch.autocast({kind}): y = {call}",
        fill=lambda line, names: (
            f"@torch.autocast({names['kind']})\n{line}" if line.startswith("def ") else ""
        ),
    ),
    "no_grad": Template("with torch.no_grad(): y = {call}", "with torch.inference_mode(): y = {call}"),
    "itself": Template("dp.module   # the model itself, where more than a call is wanted of it"),
    "module": Template("dp.module.{name}", fill=swapped(r"\.{name}\b", ".module.{name}")),
    "load": Template("{code}"),
    "move": Template('nn.DataParallel(model.to("{device}"))', "nn.DataParallel(model)   # {what}"),
    "spread": Template(
        "model(x)   # spread by hand, it needs no DataParallel; or DistributedDataParallel, a process for "
        "each copy",
        "nn.DataParallel(model)   # {what}",
    ),
    "ids": Template("nn.DataParallel(model, device_ids={once})", "nn.DataParallel(model, device_ids={ids})"),
    "call it": Template('y = {name}(x)   # the wrapper itself; forward may take mode="predict", say'),
    "unwrap": Template(
        "{part} = {part}.module   # before nn.DataParallel(model)", "{part}   # a DataParallel"
    ),
    "uncompile": Template("{plain}   # before nn.DataParallel(model)", "{part}   # compiled"),
    "unscript": Template(
        "nn.DataParallel(model)   # as it was before torch.jit", "{part}   # a ScriptModule"
    ),
    "first call": Template(
        "{call}   # one plain call first\nmodel = nn.DataParallel(model)", "model = nn.DataParallel(model)"
    ),
    "optional": Template("def __new__(cls, *args, **kwargs): ...", "def __new__(cls, config): ..."),
    "pad": Template(
        "# {what} cannot be cut by rows: pad it to (samples, longest, ...), with a mask for each sample,\n"
        "# or give each GPU samples of its own: DistributedDataParallel",
        "{call}",
    ),
    "calibrate": Template("{plain}   # while it observes: the module itself, on one GPU", "{call}"),
    "renormalise": Template(
        "{name} = nn.Embedding(...)   # without max_norm; and after optimizer.step():\n"
        "{there}.weight.data.renorm_(2, 0, max_norm)"
    ),
    "class": Template("{name} = {name}.as_subclass({type})   # at the beginning of forward"),
}
