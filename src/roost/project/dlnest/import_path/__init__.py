"""A folder of ``sys.path`` for the loader workers that a project starts by spawn or forkserver: they begin
with that path, but without the finder of `import_names`.

DLNest: installs the finder
"""
