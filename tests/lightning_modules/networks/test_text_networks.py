"""The contract of text networks: neither padding nor neighbours nor a short text matter."""

import math

import numpy as np
import pytest
import torch
from sklearn.naive_bayes import MultinomialNB
from torch import Tensor, nn

from lightning_modules.deployed import network_class
from lightning_modules.networks.bag_of_embeddings import BagOfEmbeddings

ARGUMENTS: dict[str, dict[str, object]] = {
    "text_cnn": {"embedding_dropout": 0.1},
    "bilstm": {"num_layers": 2},
    "text_transformer": {"max_length": 60},
    "bag_of_embeddings": {"num_buckets": 1000},
}
every_network = pytest.mark.parametrize("name", ARGUMENTS)


def build(name: str) -> nn.Module:
    torch.manual_seed(0)
    network = network_class(name)(vocab_size=200, num_classes=3, **ARGUMENTS[name])
    for parameter in network.parameters():
        if not parameter.any():  # what starts at zero would hide what it is for
            nn.init.normal_(parameter, std=0.1)
    return network.eval()


def batch(lengths: list[int], size: int = 60, seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(1, 200, (len(lengths), size), generator=generator)
    length = torch.tensor(lengths)
    return tokens * (torch.arange(size) < length[:, None]), length


@every_network
@torch.no_grad()
def test_a_text_alone_is_predicted_as_beside_a_long_one(name: str) -> None:
    network = build(name)
    tokens, lengths = batch([1, 2, 3, 5, 17, 60])
    together = network(tokens, lengths)
    assert together.std() > 1e-3
    for i, length in enumerate(lengths):
        alone = network(tokens[i : i + 1, :length], lengths[i : i + 1])
        torch.testing.assert_close(alone[0], together[i], rtol=0, atol=1e-5)


@every_network
@torch.no_grad()
def test_what_stands_in_the_padding_does_not_matter(name: str) -> None:
    network = build(name)
    tokens, lengths = batch([1, 4, 60])
    filled = torch.where(torch.arange(60) < lengths[:, None], tokens, 7)
    expected = network(tokens, lengths)
    torch.testing.assert_close(network(filled, lengths), expected, rtol=0, atol=1e-5)


@every_network
@torch.no_grad()
def test_the_last_token_matters(name: str) -> None:
    network = build(name)
    tokens, lengths = batch([5])
    changed = tokens.clone()
    changed[0, 4] = tokens[0, 4] % 199 + 1
    assert (network(tokens, lengths) - network(changed, lengths)).abs().max() > 1e-5


@every_network
def test_every_parameter_learns_from_a_batch_with_a_text_of_one_token(name: str) -> None:
    network = build(name).train()
    tokens, lengths = batch([1, 60], size=60)
    network(tokens, lengths).square().sum().backward()
    for parameter_name, parameter in network.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        assert parameter.grad.abs().sum() > 0, parameter_name
    embedding = network.get_submodule("embedding")
    assert isinstance(embedding, nn.Embedding)
    assert embedding.weight.grad is not None
    assert embedding.weight.grad[0].abs().sum() == 0  # padding stays zero


@every_network
@pytest.mark.filterwarnings("ignore:`torch.jit:FutureWarning")  # the format is deprecated
# nn.LSTM compares sizes in Python; they do not depend on the input
@pytest.mark.filterwarnings("ignore:Converting a tensor to a Python:torch.jit.TracerWarning")
@torch.no_grad()
def test_a_trace_serves_other_batch_sizes_and_lengths(name: str) -> None:
    network = build(name)
    traced = torch.jit.trace(network, batch([20, 7], size=20))
    for lengths in ([1], [5, 1, 3], [60] * 8, [17, 2, 9]):
        inputs = batch(lengths, size=max(lengths))
        torch.testing.assert_close(traced(*inputs), network(*inputs), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["text_cnn", "text_transformer", "bag_of_embeddings"])
@torch.no_grad()
def test_torch_export_keeps_batch_and_length_dynamic(name: str) -> None:
    """The LSTM needs the exporter's decomposition, and is tested with it."""
    network = build(name)
    n, length = torch.export.Dim("batch", max=64), torch.export.Dim("length", max=60)
    program = torch.export.export(
        network, batch([20, 7], size=20), dynamic_shapes=({0: n, 1: length}, {0: n})
    ).module()
    for lengths in ([1], [5, 1, 3], [60] * 8):
        inputs = batch(lengths, size=max(lengths))
        torch.testing.assert_close(program(*inputs), network(*inputs), rtol=0, atol=1e-5)


@pytest.mark.parametrize("num_buckets", [30_000, 100_000, 200_000, 1_000_000])
def test_word_pairs_spread_over_a_table_of_a_round_size(num_buckets: int) -> None:
    network = BagOfEmbeddings(300, 2, embedding_dim=1, num_buckets=num_buckets)
    pairs = torch.cartesian_prod(torch.arange(300), torch.arange(300))
    num_used = len(network.buckets(pairs)[:, 0].unique())
    assert num_used > 0.95 * num_buckets * (1 - math.exp(-len(pairs) / num_buckets))  # by chance


@torch.no_grad()
def test_naive_bayes_starts_from_the_log_ratios_of_scikit_learn() -> None:
    tokens, lengths = batch([1, 4, 20, 60, 33, 7])
    targets = torch.tensor([0, 2, 1, 1, 2, 2])
    network = BagOfEmbeddings(200, 3, embedding_dim=5, num_buckets=0, naive_bayes=True)
    network.start_from_counts([({"tokens": tokens, "lengths": lengths}, targets)])
    counts = np.stack([np.bincount(row, minlength=200) for row in tokens])
    counts[:, 0] = 0  # padding
    expected = MultinomialNB().fit(counts, targets)
    ratios = expected.feature_log_prob_ - expected.feature_log_prob_.mean(axis=0)
    ratios[:, counts.sum(axis=0) == 0] = 0
    weight = network.embedding.weight[:, :3]
    torch.testing.assert_close(weight, torch.from_numpy(ratios.T).float())
    prior = torch.from_numpy(expected.class_log_prior_).float()
    torch.testing.assert_close(network.head.bias.detach(), prior)


@torch.no_grad()
def test_naive_bayes_counts_pairs_of_words() -> None:
    tokens = torch.tensor([[2, 3, 0], [3, 2, 0], [3, 2, 3], [2, 3, 2]])
    lengths = torch.tensor([2, 2, 2, 2])  # what lies beyond is not read
    network = BagOfEmbeddings(4, 2, embedding_dim=2, naive_bayes=True).eval()
    inputs = {"tokens": tokens, "lengths": lengths}
    network.start_from_counts([(inputs, torch.tensor([0, 1, 1, 0]))])
    assert network(tokens[:2, :2], lengths[:2]).argmax(dim=1).tolist() == [0, 1]
    assert network.pair_embedding.weight.any(dim=1).sum() == 2


@torch.no_grad()
def test_counts_change_nothing_where_they_are_not_asked_for() -> None:
    network = BagOfEmbeddings(200, 3)
    before = network.embedding.weight.clone()
    network.start_from_counts([({}, torch.tensor([0, 1]))])
    assert torch.equal(network.embedding.weight, before)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="naive_bayes needs embedding_dim >= 3 classes, got 2"):
        BagOfEmbeddings(vocab_size=9, num_classes=3, embedding_dim=2, naive_bayes=True)
    with pytest.raises(ValueError, match="kernel_sizes must be positive"):
        network_class("text_cnn")(vocab_size=9, num_classes=2, kernel_sizes=[])
    with pytest.raises(ValueError, match="features 10 must be a multiple of num_heads 4"):
        network_class("text_transformer")(vocab_size=9, num_classes=2, max_length=9, features=10)
