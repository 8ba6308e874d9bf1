"""Lightning's modules and data modules in a Trainer of roost, by duck typing: lightning is never imported.

lightning_runner: a LightningModule as a Runner
optimizer_shapes: what ``configure_optimizers`` may return, as `Optim`
lightning_dataset: a LightningDataModule as a Dataset
trainer_view: what a module may ask its ``self.trainer``
module_contract: which classes are such modules, which methods they override, names of metrics
"""
