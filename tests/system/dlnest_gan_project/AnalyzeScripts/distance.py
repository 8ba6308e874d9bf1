def experience(self):
    print(f"distance {self.log['valid']['distance'][-1]:.6f} of {self.args['model_config']['latent']}")
