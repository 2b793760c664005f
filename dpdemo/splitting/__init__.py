"""The split of a batch: predicted by arithmetic, and done with unequal chunks.

    predict.py   the split of an epoch under DataParallel or DistributedDataParallel;
                 shapes.py: devices and shapes
    weighted.py  WeightedDataParallel, for training scripts; scatter.py: its chunks
    losses.py    losses inside forward that are right for any split; samples.py: how much each sample counts

predict.py and shapes.py import no torch.
"""
