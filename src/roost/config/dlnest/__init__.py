"""Configs of DLNest's contract: recognised, merged from their child files, and read.

child_files: recognising a root file; the files that it names in ``child_jsons``, in their order
dlnest_settings: the contract's own keys, and roost's in the section ``roost``
root_folder: the folder of the project
bundled_plugins: the plugins that come with roost
mail_password: the password for the plugin MailsNote, which no config may have

Every key is the user's, except those of the section ``roost``. No default is added to the user's keys,
nothing is interpolated, and no name is compared with a setting of roost.
"""
