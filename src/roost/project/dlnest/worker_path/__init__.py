"""The import names of DLNest in processes that multiprocessing starts anew: this folder is on their
``sys.path``.

DLNest: the module of that name, which makes the others importable
"""
