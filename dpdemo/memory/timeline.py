"""A step's memory over time, for one GPU: few enough moments for a picture, and all of its peaks."""

from dpdemo.reports.memory import Moment
from dpdemo.virtual.recorder import Recorder

MOST_MOMENTS = 240


def moments_of(recorder: Recorder, index: int) -> tuple[Moment, ...]:
    """Return what a GPU held over a step: of each of up to 240 spans of events the moment it held most.

    A span never reaches from one phase into the next, so that each phase is seen.
    """
    events = recorder.events[index]
    width = max(1, -(-len(events) // MOST_MOMENTS))
    found: list[Moment] = []
    count = 0
    for event in events:
        if found and found[-1].phase == event.phase and count < width:
            count += 1
            if event.live_bytes > found[-1].live_bytes:
                found[-1] = Moment(event.phase, event.live_bytes)
        else:
            count = 1
            found.append(Moment(event.phase, event.live_bytes))
    return tuple(found)
