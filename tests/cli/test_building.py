"""What a constructor of the user's is given."""

import pytorch_lightning as pl

from cli.building import build_data


class WithoutSeed(pl.LightningDataModule):
    def __init__(self, batch_size: int = 8) -> None:
        super().__init__()
        self.arguments = {"batch_size": batch_size}


class WithSeed(WithoutSeed):
    def __init__(self, seed: int, batch_size: int = 8) -> None:
        super().__init__(batch_size)
        self.arguments["seed"] = seed


class HandingOn(WithSeed):
    def __init__(self, batch_size: int = 8, **kwargs: int) -> None:
        super().__init__(batch_size=batch_size, **kwargs)


def test_a_data_source_gets_the_seed_where_it_takes_one() -> None:
    for source in (WithoutSeed, WithSeed, HandingOn):
        settings = {"name": f"{__name__}.{source.__name__}", "batch_size": 4}
        data = build_data({"data": settings, "allow_external_code": True, "seed": 7})
        seed = {} if source is WithoutSeed else {"seed": 7}
        assert data.arguments == {"batch_size": 4, **seed}
