"""Streams and events keep what programs ask of them."""

import pytest
import torch

from dpdemo.virtual import suspended, virtual_gpus

pytestmark = pytest.mark.usefixtures("gpus")


def test_a_stream_entered_is_the_current_one_and_so_is_its_device():
    stream = torch.cuda.Stream(device=1)
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() == stream
        assert torch.cuda.current_device() == 1
    assert torch.cuda.current_stream(1) == torch.cuda.default_stream(1)
    assert torch.cuda.current_device() == 0
    with stream:
        assert torch.accelerator.current_stream() == stream
    assert torch.cuda.current_stream(1) != stream


def test_streams_wait_for_one_another_at_once():
    stream, tensor = torch.Stream(2), torch.ones(1, device="cuda:2")
    stream.wait_stream(torch.cuda.current_stream(2))
    tensor.record_stream(stream)
    stream.wait_event(stream.record_event())
    stream.synchronize()
    assert stream.query()
    assert stream.device == torch.device("cuda:2")
    with pytest.raises(RuntimeError, match="record_stream: expected a CUDA tensor"):
        torch.ones(1).record_stream(stream)


def test_two_streams_differ_and_equal_themselves():
    first, other = torch.cuda.Stream(), torch.cuda.Stream()
    assert first != other
    assert len({first, other, first}) == 2
    assert "cuda:0" in repr(first)
    torch.cuda.set_stream(first)
    assert torch.cuda.current_stream() == first
    torch.cuda.set_stream(torch.cuda.default_stream())


def test_events_measure_wall_clock_time():
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    sum(range(10000))
    end.record()
    torch.cuda.synchronize()
    assert begin.query()
    assert repr(torch.cuda.Event()) == "<torch.cuda.Event uninitialized>"
    assert repr(begin).startswith("<torch.cuda.Event 0x")
    assert 0 < begin.elapsed_time(end) < 10_000
    with pytest.raises(ValueError, match="enable_timing=True"):
        torch.cuda.Event().elapsed_time(end)
    with pytest.raises(ValueError, match="must be recorded before"):
        begin.elapsed_time(torch.cuda.Event(enable_timing=True))


def test_a_stream_is_not_current_in_the_next_block():
    torch.cuda.set_stream(torch.cuda.Stream(1))
    with suspended(), virtual_gpus(2):
        assert torch.cuda.current_stream(1) == torch.cuda.default_stream(1)
        assert torch.cuda.current_device() == 0


def test_streams_and_events_have_handles():
    stream, event = torch.cuda.Stream(1), torch.cuda.Event()
    assert stream.native_handle == stream.cuda_stream
    assert event.event_id == event.cuda_event
