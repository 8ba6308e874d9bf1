"""A stand-in for the code of CornerNet-Lite: a network, a database and a sampling function of a few lines."""
