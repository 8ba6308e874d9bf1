"""Plugins of DLNest's contract: functions that run before methods of the project with the same names.

plugin_base: the base class of plugins
plugin_loading: the plugins of a config, by name or path
plugin_calls: the calls of plugins before the project's methods
log_init: configures logging
auto_tensorboard_scalar: the log's lists as TensorBoard scalars
simple_cmd_visualize: the log's newest values as a line
mails_note: an e-mail at the end of a run
send_mail: sends one e-mail over TLS
"""
