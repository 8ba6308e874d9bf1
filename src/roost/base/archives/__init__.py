"""Archives whose content is not trusted, unpacked into folders.

unpacking: the formats, and how each is unpacked
safe_folder: the folder, into which nothing leads out and which cannot grow without end
"""
