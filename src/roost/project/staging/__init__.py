"""Staged archives: an archive on a slow disk or a server, unpacked to a local disk before the data are built.

package_archives: the staged archives of a package: its settings, its record, the variables of its processes
archive_staging: stages one archive: found, read once, verified, unpacked, published
archive_source: where an archive is: a file, a web server, or a store that fsspec reads
staging_cache: the folder of the staged archives: entries, locks, removal of those not used
staging_folder: where that folder is

Nothing here imports torch: commands that show or clean the folder import it.
"""
