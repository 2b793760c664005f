"""CUDA's own random numbers: what a real card draws from a seed, drawn on the CPU.

In the order to read them:

    philox.py         the generator: a counter and a key in, four numbers of 32 bits out
    curand.py         NVIDIA's conversions: those bits as uniform and normal numbers
    launch.py         which thread of a card draws which element of a tensor
    fills.py          the distributions that fill a tensor: `uniform_`, `normal_`, `random_`, …
    layouts.py        kernels that lay their numbers out in their own way: dropout, `randperm`
    distributions.py  the operators that are made of them: `rand`, `dropout`, `randperm`, …

Philox is defined by its counter and key alone, so the numbers are the same on every machine. Which element
gets which number depends on how many threads a card runs at a time, and so on the card (cards.py).
"""
