"""Data sources by short name. To add one: a file in this folder and a line here."""

DATAMODULES: dict[str, str] = {
    "digits": "datamodules.digits.Digits",
    "digits_on_canvas": "datamodules.digits_on_canvas.DigitsOnCanvas",
    "mnist": "datamodules.public_images.MNIST",
    "fashion_mnist": "datamodules.public_images.FashionMNIST",
    "cifar10": "datamodules.public_images.CIFAR10",
    "cifar100": "datamodules.public_images.CIFAR100",
    "image_folder": "datamodules.image_folder.ImageFolder",
    "text_files": "datamodules.text_files.TextFiles",
    "bbc_news": "datamodules.bbc_news.BBCNews",
    "imdb": "datamodules.imdb.IMDB",
    "ag_news": "datamodules.ag_news.AGNews",
}
