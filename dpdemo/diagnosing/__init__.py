"""One screen about a model or a program: is it even, is it right, does it fit, does it pay, what next."""
