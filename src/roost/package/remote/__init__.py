"""Remote copies of packages: in a store (a folder, S3, SFTP, …), verified, behind the run.

In reading order:

- store: put, get, list, delete
- folder_store: a folder as a store
- fsspec_store: the same by fsspec, for all other schemes
- sftp_store: the same for SFTP, whose objects paramiko itself reads and writes
- copy_index: the format of a copy: objects named by their digests, and an index
- remote_copy: the indexes and objects of one copy
- local_files: the files of a package, read while it is written
- upload_plan: what an upload does, and which checkpoints a copy keeps
- ownership: which package and machine may write to a copy
- transfer_rate: the limit of the bandwidth
- upload: brings a copy up to date
- restore: a package from its copy
- upload_hold: checkpoints that stay until they are uploaded
- upload_time: how long the upload of a checkpoint takes
- remote_status: `remote.json`, how far the copy of a package is
"""
