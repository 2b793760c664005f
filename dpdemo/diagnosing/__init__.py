"""A model or a program on one screen: even split, correct results, memory, speed-up, next step."""
