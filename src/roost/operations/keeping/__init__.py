"""Operations that keep runs in order: labels, disk usage, and the removal of what is not needed any more.

label_packages: tags, notes and stars of packages
allocated_bytes: what files take on the disk
disk_usage: what packages take on the disk
refusals: why a package must not be removed or pruned now
trash: removed packages, until they are restored or deleted
staged_data: the staged archives of a machine
prune: removes parts of packages: checkpoints, or all but their weights
"""
