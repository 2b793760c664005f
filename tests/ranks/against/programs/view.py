"""Use files in the private view of the run on one rank, and print what was seen as JSON: `view.py FOLDER`."""

import json
import logging
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import torch

from dpdemo.ranks.against.files import give_view

folder = Path(sys.argv[1])
os.chdir(folder)
touched = {name: (folder / name).exists() for name in ("train.log", "old.pt", "new.pt", "metrics.csv")}
remarks = []
give_view(
    SimpleNamespace(
        settings=SimpleNamespace(folder=str(folder / "aside")),
        ranks=SimpleNamespace(touched={str(folder / name): existed for name, existed in touched.items()}),
        remark=lambda text, **_: remarks.append(Path(text.split(",")[0]).name),
    )
)
seen = {}
logging.basicConfig(filename="train.log", level="INFO")
logging.getLogger("train").info("one rank")
logging.shutdown()
seen["old.pt is there"] = os.path.exists("old.pt")
seen["new.pt is there"] = Path("new.pt").exists()
os.remove("old.pt")
torch.save(torch.ones(1), "old.pt")
seen["saved"] = torch.load("old.pt").tolist()
seen["data"] = Path("data.txt").read_text("utf-8")
with open("data.txt", "a", encoding="utf-8") as data:
    data.write(" and more")
seen["data with more"] = Path("data.txt").read_text("utf-8")
seen["remarks before"] = list(remarks)
Path("train.log").read_text("utf-8")
with open("metrics.csv", "r+", encoding="utf-8"):
    pass
seen["remarks"] = remarks
print(json.dumps(seen))
