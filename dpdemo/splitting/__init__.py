"""The split of a batch: predicted by arithmetic, and done with unequal chunks.

    predict.py   the split of an epoch under DataParallel or DistributedDataParallel;
                 shapes.py: devices and shapes
    lesson.py    the cases of the offline page
    weighted.py  WeightedDataParallel, for training scripts; scatter.py: its chunks
    losses.py    losses inside forward that are right for any split

predict.py, shapes.py and lesson.py import no torch.
"""
