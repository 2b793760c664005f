"""Strategies for hypothesis: splits, whole configs, and texts that are nearly YAML."""

from hypothesis import strategies as st

from dpdemo.config.catalogue import MODELS
from dpdemo.config.fields import KEYS, Config

batch_sizes = st.integers(1, 2000)
device_counts = st.integers(1, 128)

configs = st.builds(
    lambda batch_size, data_size, gpus, drop_last, model: Config(
        batch_size=batch_size,
        data_size=max(data_size, batch_size if drop_last else 1),
        gpus=gpus,
        drop_last=drop_last,
        model=model,
    ),
    batch_size=st.integers(1, 200),
    data_size=st.integers(1, 2000),
    gpus=st.none() | st.integers(1, 40) | st.lists(st.integers(0, 9), min_size=1, max_size=12).map(tuple),
    drop_last=st.booleans(),
    model=st.sampled_from([*MODELS, "pkg.mod:factory"]),
)

_keys = st.sampled_from([*KEYS, "batch_sise", "<<", "~", "1", '"\\ud800"', "? a", "[x]"])
_tags = st.sampled_from(
    ["!!int", "!!str", "!!float", "!!bool", "!!null", "!!binary", "!!timestamp", "!!set", "!!omap",
     "!!pairs", "!!seq", "!!map", "!!merge", "!!python/object:os.system", "!own", "!", "&a", "&b"]
)  # fmt: skip
_scalars = st.sampled_from(
    ["30", '"30"', "3.5", "true", "null", "", ".nan", "-.inf", "1e3", "0", "-1", "0x" + "f" * 5000,
    "9" * 5000,
     "2001-99-99", "2001-01-01", "all", "linear", "a:b", "*a", "*b", "|\n  x", "'", '"\\ud800"', '"\\0"',
     "1_0"]
) | st.text(max_size=8)  # fmt: skip


def _nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    lists = st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
    mappings = st.lists(st.tuples(_keys, inner), max_size=3).map(
        lambda items: "{" + ", ".join(f"{key}: {value}" for key, value in items) + "}"
    )
    tagged = st.tuples(_tags, inner).map(" ".join)
    return lists | mappings | tagged


_values = st.recursive(_scalars, _nested, max_leaves=8)
_lines = st.tuples(_keys, _values).map(lambda pair: f"{pair[0]}: {pair[1]}")
_documents = st.lists(_lines | _values, max_size=5).map("\n".join)

yaml_texts = st.tuples(
    st.sampled_from(["", "", "", "---\n", "%YAML 1.1\n---\n", "&a ", "!!omap ", "\ufeff"]), _documents
).map("".join)
