"""Networks by short name. To add one: a file in this folder and a line here."""

NETWORKS: dict[str, str] = {
    "small_cnn": "lightning_modules.networks.small_cnn.SmallCNN",
    "cifar_resnet": "lightning_modules.networks.cifar_resnet.CIFARResNet",
    "roi_classifier": "lightning_modules.networks.roi_classifier.ROIClassifier",
    "torchvision": "lightning_modules.networks.torchvision_network.TorchvisionNetwork",
    "text_cnn": "lightning_modules.networks.text_cnn.TextCNN",
    "bilstm": "lightning_modules.networks.bilstm.BiLSTM",
    "text_transformer": "lightning_modules.networks.text_transformer.TextTransformer",
    "bag_of_embeddings": "lightning_modules.networks.bag_of_embeddings.BagOfEmbeddings",
}
