"""For each rule a model that has the pitfall, and its fixed twin: the tables that the tests go through.

A case is a function that returns (model, inputs), as a factory of `dpdemo check` does; it runs inside the
block of virtual GPUs. A class of models is a case, too: its inputs are `x()`, or what `given` makes. Its
name says what is wrong, or right. Each family of rules has a file.
"""

import cases_gather
import cases_holders
import cases_kept
import cases_links
import cases_loss
import cases_places
import cases_programs
import cases_repairs
import cases_scatter
import cases_state
import cases_threads
import cases_wrapper
from casetable import TRIGGERS, TWINS

FAMILIES = (
    cases_wrapper, cases_scatter, cases_state, cases_links, cases_gather, cases_loss,
    cases_places, cases_threads, cases_holders,
    cases_repairs, cases_programs, cases_kept,
)  # fmt: skip
__all__ = ["FAMILIES", "TRIGGERS", "TWINS"]
