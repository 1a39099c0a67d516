"""What the study measures, at which sizes and with how many seeds: in full, and quickly."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """Sizes and seeds of every measurement; an empty entry is left out.

    bars: (bits, seeds) of one step at m = 6 ln d. widths: factors c of m = c ln d, at `width_bits`. kappas: step sizes
    in units of sqrt(m) ln d, at `kappa_bits`. scales: (bits, width) of the runs that are timed. maps_*: see maps.
    one_step_samples, many_step_samples, wide_samples: (bits, seeds, factors), n = factor * d^2 for the first and
    factor * d for the others; wide ones have m = d. sample_widths: m of one-step curves at one d. networks: (bits,
    neurons). attention: bits at which the smallest width is looked for. shown: bits of the models that the instruments
    look at.
    """

    bars: tuple[tuple[int, int], ...]
    widths: tuple[float, ...]
    width_bits: tuple[int, ...]
    width_seeds: int
    kappas: tuple[float, ...]
    kappa_bits: int
    starts: tuple[int, ...]
    start_seeds: int
    scales: tuple[tuple[int, int], ...]
    maps_bits: int
    maps_width: int
    maps_seeds: int
    maps_few: int
    maps_sizes: tuple[float, ...]
    maps_coarse: tuple[float, ...]
    maps_steps: int
    one_step_samples: tuple[tuple[int, int, tuple[float, ...]], ...]
    many_step_samples: tuple[tuple[int, int, tuple[float, ...]], ...]
    wide_samples: tuple[tuple[int, int, tuple[float, ...]], ...]
    sample_widths: tuple[int, ...]
    sample_widths_bits: int
    sample_widths_seeds: int
    parity_heads: tuple[int, ...]
    parity_bits: tuple[int, ...]
    parity_seeds: int
    parity_methods: tuple[str, ...]
    networks: tuple[tuple[int, tuple[int, ...]], ...]
    network_seeds: int
    attention: tuple[int, ...]
    attention_seeds: int
    equality: tuple[tuple[int, int], ...]
    shown: int
    shown_seeds: int

    @property
    def left_out(self) -> tuple[str, ...]:
        """Claims that this plan does not measure."""
        return () if self.one_step_samples else ("X6", "B7")


def _powers(low: float, high: float, step: float) -> tuple[float, ...]:
    return tuple(10.0 ** (low + index * step) for index in range(round((high - low) / step) + 1))


_SMALL = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0)
_MANY = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)

FULL = Plan(
    bars=((32, 200), (64, 200), (128, 200), (256, 200), (1024, 200), (10_000, 200), (100_000, 100)),
    widths=(2.0, 3.0, 4.0, 6.0, 10.0, 16.0),
    width_bits=(32, 64, 256, 1024, 4096),
    width_seeds=200,
    kappas=(1 / 64, 1 / 16, 1 / 4, 1.0, 4.0, 32.0, 1024.0),
    kappa_bits=256,
    starts=(32, 64, 128, 256, 512, 1024),
    start_seeds=400,
    scales=((100_000, 96), (1_000_000, 96)),
    maps_bits=64,
    maps_width=32,
    maps_seeds=40,
    maps_few=8,
    maps_sizes=_powers(-6.0, 10.0, 0.5),
    maps_coarse=_powers(-4.0, 6.0, 1.0),
    maps_steps=500,
    one_step_samples=((32, 200, (*_SMALL, 4.0)), *((bits, 100, _SMALL) for bits in (64, 128, 256)), (512, 60, _SMALL)),
    many_step_samples=(
        (32, 100, (0.25, *_MANY)),
        (64, 100, _MANY),
        (128, 60, _MANY),
        (256, 60, _MANY),
        (512, 40, _MANY[1:]),
    ),
    wide_samples=((32, 60, (0.25, *_MANY)), (64, 60, _MANY), (128, 40, _MANY), (256, 40, _MANY[:-1])),
    sample_widths=(16, 32, 64, 128),
    sample_widths_bits=128,
    sample_widths_seeds=100,
    parity_heads=(3, 4, 5, 6),
    parity_bits=(64, 256),
    parity_seeds=20,
    parity_methods=("one-step", "normalised", "in-turn"),
    networks=((32, (2, 4, 8)), (64, (2, 4, 8)), (128, (2, 4, 8)), (256, (2, 4, 8)), (512, (4,))),
    network_seeds=8,
    attention=(32, 64, 128, 256, 512, 1024, 4096, 16_384),
    attention_seeds=100,
    equality=((8, 2), (10, 2), (12, 2), (8, 3), (10, 3), (8, 4), (10, 4)),
    shown=32,
    shown_seeds=16,
)

QUICK = Plan(
    bars=((32, 100), (64, 100), (256, 100), (1024, 100), (10_000, 40)),
    widths=(2.0, 4.0, 6.0),
    width_bits=(64, 256, 1024),
    width_seeds=60,
    kappas=(1 / 16, 1.0, 32.0, 1024.0),
    kappa_bits=64,
    starts=(64, 256, 1024),
    start_seeds=120,
    scales=(),
    maps_bits=64,
    maps_width=32,
    maps_seeds=12,
    maps_few=4,
    maps_sizes=_powers(-4.0, 8.0, 1.0),
    maps_coarse=_powers(-3.0, 5.0, 1.0),
    maps_steps=100,
    one_step_samples=(),
    many_step_samples=(),
    wide_samples=(),
    sample_widths=(),
    sample_widths_bits=0,
    sample_widths_seeds=0,
    parity_heads=(3, 4),
    parity_bits=(64,),
    parity_seeds=20,
    parity_methods=("one-step", "normalised"),
    networks=((32, (4,)), (64, (4,)), (128, (4,))),
    network_seeds=4,
    attention=(32, 64, 128, 256, 1024),
    attention_seeds=40,
    equality=((8, 2), (8, 3), (8, 4)),
    shown=32,
    shown_seeds=4,
)
