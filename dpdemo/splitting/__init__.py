"""The predicted split of a batch, by arithmetic.

    predict.py   the split of an epoch under DataParallel or DistributedDataParallel;
                 shapes.py: devices and shapes

predict.py and shapes.py import no torch.
"""
