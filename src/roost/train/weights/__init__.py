"""Initial weights: reading them from packages and files, and loading them into a module.

package_weights: reads weights that roost wrote.
weight_files: reads safetensors and torch.save files.
weight_names: maps the names of a file to those of a module.
weight_loader: loads weights into a module, as far as they fit, and reports which did not.
"""
