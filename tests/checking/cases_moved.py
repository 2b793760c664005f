"""State and results that move around the call: where they are written, read and kept, in many ways."""

from casetable import Net, trigger, x


class Ticking(Net):
    def __init__(self):
        super().__init__()
        self.seen, self.calls = 0, 0

    def tick(self, rows):
        setattr(self, "calls", self.calls + 1)  # noqa: B010 - as people write it
        self.seen += len(rows)


@trigger("DP301", "`seen` goes from 0 to 8")
class ABaseClassCountsSamplesAndCalls(Ticking):
    def forward(self, x):
        self.tick(x)
        return self.fc(x)


@trigger("DP211", "`info` is written by all replicas", given=lambda: (x(), {}))
class TwoEntriesAreWrittenToADict(Net):
    def forward(self, x, info):
        y = self.fc(x)
        info["size"] = len(x)
        info["mean"] = y.mean().item()
        return y


@trigger("DP403", "is the text")
class NamesAreLookedUpInALoop(Net):
    def forward(self, x):
        y = self.fc(x)
        names = []
        for index in y.argmax(-1).tolist():
            names.append("abc"[index])  # noqa: PERF401 - as people write it
        return y, names
