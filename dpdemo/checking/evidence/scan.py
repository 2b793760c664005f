"""What the model is made of, read without running it."""

from dataclasses import dataclass

from dpdemo.reports.check import Place

MIXED = "mixed"
"""The beginning of a nesting whose levels are not alike: the names of all its classes follow."""

MOVED_ALONG = ", moved with the model"
"""Said of a tensor that the model's own `_apply`, `to` or `cuda` takes along, and that no replica gets."""


@dataclass(frozen=True, slots=True)
class Held:
    """A thing that a module holds outside its registered parameters, buffers and submodules."""

    path: str
    kind: str
    detail: str = ""
    place: Place | None = None
    layout: str = ""
    """Of a list, tuple or dict that holds nothing else: "list of tensors", "dict of modules"; or "names of
    modules" where keys can be names of modules."""
    tensors: tuple[str, ...] = ()
    """Of an object: its attributes that are tensors; of a function: the names that it has from around it."""
    nesting: tuple[str, ...] = ()
    """What stands around tensors, or modules of the model, the outermost first: "list", "dict", "tuple",
    "namedtuple" or "object"."""


@dataclass(frozen=True, slots=True)
class Scan:
    """What the model is made of, read without running it."""

    model: str
    held: tuple[Held, ...] = ()
    module_types: tuple[tuple[str, str], ...] = ()
    flattens_parameters: bool = True
    forward: Place | None = None
    wrappers: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    """Those wrappers whose parameters are not trained, where others are."""
    device_ids: tuple[int, ...] = ()
    strays: tuple[tuple[str, str], ...] = ()
    pads_alone: bool = False
    shortened: tuple[tuple[str, float, float], ...] = ()
    """Embeddings that shorten their rows in forward: path, longest norm and its type."""
    is_training: bool = True
    """Whether the model, as it is given, is to be trained."""
    norms: tuple[tuple[str, str, int], ...] = ()
    """BatchNorm layers: path, class and number of channels."""
    buffers: tuple[tuple[str, int], ...] = ()
    """The paths of its buffers, with the rows of each."""
    parameters: tuple[str, ...] = ()
    """The paths of its parameters, which replicas have as attributes."""
    classes: tuple[tuple[str, str], ...] = ()
    """The user's classes of its modules, with the files that define them."""
    inputs: tuple[str, ...] = ()
    """The names of forward's arguments."""
    numbers: tuple[tuple[str, int], ...] = ()
    """Whole numbers on its modules, by attribute: one of them may be a batch size."""
    together: tuple[tuple[str, ...], ...] = ()
    """The paths by which several modules hold one container, or one object of the user's."""

    def of_kind(self, kind: str) -> tuple[Held, ...]:
        """List what is held of one kind."""
        return tuple(held for held in self.held if held.kind == kind)

    @property
    def can_be_copied(self) -> bool:
        """Whether copies of it can run: those of lazy and TorchScript modules cannot."""
        return not self.of_kind("lazy") and all(name != "ScriptModule" for _, name in self.module_types)


@dataclass(frozen=True, slots=True)
class Entered:
    """A function of the user's that a plain call went into, and what tensors on the GPU it had there."""

    file: str
    line: int
    """Where it begins: its first decorator, if it has any."""
    tensors: tuple[str, ...]
    """As code that asks for one: of its arguments, and then of the module that it is a method of."""
    numbers: tuple[str, ...] = ()
    """Its arguments that are whole numbers."""
