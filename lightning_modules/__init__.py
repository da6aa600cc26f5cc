"""What trains: networks, the module around them, loss, optimizer, schedule and metrics.

LightningModules by short name. To add one: a file in this folder and a line here.
"""

MODULES: dict[str, str] = {
    "classifier": "lightning_modules.classifier.Classifier",
}
