"""A stand-in for SpeeChain: a model and a dataset with the calls that its runner makes, of a few lines."""
