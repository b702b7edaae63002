"""Loading a release and sampling from it.

**Guarantee.** Every byte is compared with the certificate before it is used, nothing in a release is executed, and
sampling reads only the release: it is post-processing, without privacy cost or limit.

**Reproducibility.** Records are generated in blocks of a fixed size, each with its own random streams (`gpate.streams`). The
same seed gives the same records on the same machine, for any chunk size and number of records: a sample of 10 is the start of
a sample of 1,000,000. Memory is that of a chunk.

**Constraints.** Every record of a table satisfies those of its schema (`gpate.release.constrained_rows`), and has placeholders for ids.

    release = Release.load("run/release")
    release.sample(10_000, seed=1)                          # a DataFrame, or (images, labels)
    release.sample(500, where={"income": ">50K", "age": (30, 40)})
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gpate.errors import ConditionTooRare, InvalidValue, ReleaseCorrupt, require_count
from gpate.generators import GeneratorSpec, MixtureSpec, Spec, draw
from gpate.generators.points import Points
from gpate.release import release_files as files
from gpate.release.certificate import Certificate
from gpate.release.conditions import Conditions, conditions_of
from gpate.release.constrained_rows import HOW, Acceptance, satisfying
from gpate.release.generator_file import Config, fit_problems, network_from, shortened, weights_from_bytes
from gpate.release.labelled_images import Labelled, labelled_images
from gpate.release.verify import hash_problems
from gpate.schema import ImageSchema, TableSchema
from gpate.schema.codec import ImageCodec, TableCodec
from gpate.streams import Streams
from gpate.torch_utils import matmul_precision

Images = tuple[NDArray[np.uint8], NDArray[Any] | None]
"""Images [n, height, width] or [n, height, width, 3], and the class of each, by name; None without classes."""

TABLE_BLOCK, IMAGE_BLOCK = 4096, 256
"""Records per block. Changing these numbers changes the records of every seed."""

TABLE_CHUNK, IMAGE_CHUNK = 65_536, 1024

PATIENCE, RAREST = 100_000, 2_000
"""Rejection sampling stops after PATIENCE records, and RAREST more for each accepted one."""


class Release:
    """A loaded release.

    Attributes:
        folder: its path.
        certificate: its guarantee.
        schema: of its records.
        spec: of its generator.
        settings: the recipe of its run.
        shares: class proportions.
        notes: warnings of its run.
        acceptance: how the records of the latest sample came to satisfy the constraints of their schema.
        labelled: how the images of the latest sample got their labels, if the generator has a labeller.
    """

    def __init__(
        self,
        folder: Path,
        *,
        certificate: Certificate,
        schema: TableSchema | ImageSchema,
        config: Config,
        network: nn.Module,
    ) -> None:
        self.folder = folder
        self.certificate = certificate
        self.schema = schema
        self.spec: Spec = config.spec
        self.settings = config.settings
        self.shares = config.shares
        self.notes = config.notes
        self._network = network
        self._table = TableCodec(schema) if isinstance(schema, TableSchema) else None
        self._images = ImageCodec(schema) if isinstance(schema, ImageSchema) else None
        self.block = TABLE_BLOCK if self._table else IMAGE_BLOCK
        self.acceptance, self.labelled = Acceptance(), Labelled()

    @classmethod
    def load(cls, folder: str | os.PathLike[str], *, check: bool = True) -> Self:
        """Load a release.

        Args:
            folder: `release/` of a run.
            check: compare every file with the certificate. Without it the files must still be valid.

        Raises:
            ReleaseNotFound: it does not exist, or its run is not finished.
            ReleaseCorrupt: it differs from its certificate.
        """
        folder = Path(folder)
        certificate = Certificate.from_bytes(files.read(folder, files.CERTIFICATE))
        contents = {name: files.read(folder, name) for name in files.CERTIFIED}
        if check:
            problems = files.folder_problems(folder)
            for name, content in contents.items():
                problems += [f"{name}: {problem}" for problem in hash_problems(name, content, certificate)]
            if problems:
                raise ReleaseCorrupt(
                    f"{folder} is not the release that was certified: {shortened(problems)}. "
                    "Fix: download it again; nothing else belongs in that folder."
                )
        schema, config = files.schema_from(contents[files.SCHEMA]), Config.from_bytes(contents[files.CONFIG])
        if problems := fit_problems(config, schema):
            raise ReleaseCorrupt(f"{folder} contradicts itself: {shortened(problems)}.")
        network = network_from(config.spec, weights_from_bytes(contents[files.WEIGHTS]))
        return cls(folder, certificate=certificate, schema=schema, config=config, network=network)

    def to(self, device: str | torch.device) -> Self:
        """Move a network to a device: images are the same up to rounding. A mixture stays on the CPU."""
        if isinstance(self.spec, GeneratorSpec):
            self._network.to(device)
        return self

    def sample(
        self, n: int, *, where: Mapping[str, Any] | None = None, seed: int | None = None, balanced: bool = False
    ) -> Any:
        """Sample synthetic records.

        Args:
            n: number of records.
            where: conditions, see `gpate.release.conditions`.
            seed: the same seed gives the same records.
            balanced: equal numbers of each class, in turn, instead of the class proportions.

        Returns:
            A DataFrame with the schema's columns and types for a table, `Images` for images.

        Raises:
            UnknownClass: the schema has no such class.
            InvalidValue: the conditions cannot be met.
            ConditionTooRare: too few records meet the conditions.
        """
        chunks = list(self.sample_chunks(n, where=where, seed=seed, balanced=balanced, chunk=max(n, 1)))
        return chunks[0]

    def sample_chunks(
        self,
        n: int,
        *,
        where: Mapping[str, Any] | None = None,
        seed: int | None = None,
        balanced: bool = False,
        chunk: int | None = None,
    ) -> Iterator[Any]:
        """As `sample`, in chunks of `chunk` records (the last may be shorter); at least one chunk."""
        require_count("n", n)
        size = require_count("chunk", (TABLE_CHUNK if self._table else IMAGE_CHUNK) if chunk is None else chunk, 1)
        conditions = conditions_of(self.schema, where)
        if balanced and conditions.label is not None:
            raise InvalidValue("balanced", True, "false when a class is requested")
        streams, self.acceptance, self.labelled = Streams(seed), Acceptance(), Labelled()
        return self._chunks(n, size, self._blocks(conditions, streams, balanced), streams.seed)

    @torch.no_grad()
    def probabilities(self, images: NDArray[np.uint8]) -> NDArray[np.float64]:
        """What the labeller thinks of images, [n, classes]: a probability for each class.

        Args:
            images: [n, height, width] or [n, height, width, 3], such as `sample` returns.

        Raises:
            InvalidValue: the generator of this release has no labeller, or the images have another size.
        """
        if not isinstance(self.spec, GeneratorSpec) or self.spec.labeller is None:
            fix = "Fix: fit with a labeller, `labelling.share` above 0."
            raise InvalidValue("release", str(self.folder), "one with a labeller", fix)
        channels, height, width = self.spec.shape
        expected = (height, width) if channels == 1 else (height, width, channels)
        if images.shape[1:] != expected:
            raise InvalidValue("images", list(images.shape), f"of shape [n, {', '.join(map(str, expected))}]")
        device = next(self._network.parameters()).device
        pixels = torch.from_numpy(np.ascontiguousarray(images)).view(-1, height, width, channels).permute(0, 3, 1, 2)
        with matmul_precision("highest"):
            labeller = self._network.get_submodule("labeller")
            parts = [labeller(part.to(device).float() / 255) for part in torch.split(pixels, self.block)]
        found: NDArray[np.float64] = torch.cat(parts).double().softmax(1).cpu().numpy()
        return found

    def _blocks(self, conditions: Conditions, streams: Streams, balanced: bool) -> Iterator[Any]:
        """Records that meet the conditions, block after block, indefinitely."""
        tried = found = number = 0
        points = None
        if isinstance(self.spec, MixtureSpec):
            points = Points(1 + self.spec.dimension, size=self.block, streams=streams)
        while True:
            records = self._block(number, conditions.label, streams, balanced, points)
            number, tried = number + 1, tried + self.block
            if conditions.filters:
                records = records[conditions.fits(records)]
                found += len(records)
                if tried > PATIENCE + RAREST * found:
                    raise ConditionTooRare(
                        f"Only {found:,} of {tried:,} synthetic records meet {conditions.text}. Fix: loosen the "
                        "conditions (a range instead of one value), or use fewer of them."
                    )
            yield records

    @torch.no_grad()
    def _block(self, number: int, label: int | None, streams: Streams, balanced: bool, points: Points | None) -> Any:
        """One whole block: always the same computation, so that a record does not depend on `n`."""
        own = None if points is None else points.block(number)
        labels = self._labels(number, label, streams, balanced, own)
        rest = None if own is None else own[:, 1:]
        if isinstance(self.schema, TableSchema):
            if self.schema.constrained is None:
                return self._rows(labels, streams, number, points=rest)
            return satisfying(
                self.schema.constrained,
                labels,
                lambda again, wanted: self._rows(wanted, streams, number, *again, points=None if again else rest),
            )
        stream = streams.torch("sample-latent", number)
        if isinstance(self.spec, GeneratorSpec) and self.spec.labeller is not None:
            features, how = labelled_images(self._network, self.spec, labels, stream)
            self.labelled += how
        else:
            features = draw(self._network, self.spec, labels, stream)
        assert self._images is not None
        images = self._images.decode(features.view(-1, *self._images.shape))
        return images, self._images.decode_labels(labels) if self.schema.classes else None

    def _rows(self, labels: Tensor, streams: Streams, *ids: int, points: Tensor | None) -> Any:
        """Rows of a table as the generator draws them."""
        assert self._table is not None
        features = draw(self._network, self.spec, labels, streams.torch("sample-latent", *ids), points=points)
        given = labels if self.schema.classes else None
        if isinstance(self.spec, MixtureSpec) and self.spec.by_value:
            return self._table.decode_values(features, given)
        return self._table.decode(features, given, generator=streams.torch("sample-values", *ids))

    def _labels(
        self, number: int, label: int | None, streams: Streams, balanced: bool, points: Tensor | None
    ) -> Tensor:
        if label is not None:
            return torch.full((self.block,), label, dtype=torch.int64)
        if balanced:
            return torch.arange(number * self.block, (number + 1) * self.block) % self.spec.classes
        weights = torch.tensor(self.shares, dtype=torch.float64)
        if points is not None:
            ends = weights.cumsum(0)[:-1] / weights.sum()
            return torch.searchsorted(ends, points[:, 0].contiguous(), right=True)
        stream = streams.torch("sample-label", number)
        return torch.multinomial(weights, self.block, replacement=True, generator=stream)

    def _chunks(self, n: int, size: int, blocks: Iterator[Any], seed: int) -> Iterator[Any]:
        """Split blocks into chunks, up to n records."""
        done, waiting, ready = 0, [next(blocks)], 0
        ready = _length(waiting[0])
        while True:
            wanted = min(size, n - done)
            while ready < wanted:
                waiting.append(next(blocks))
                ready += _length(waiting[-1])
            whole = _joined(waiting)
            yield self._finished(_numbered(_cut(whole, 0, wanted), done), done, seed)
            waiting, ready, done = [_cut(whole, wanted, ready)], ready - wanted, done + wanted
            if done >= n:
                return

    def _finished(self, records: Any, start: int, seed: int) -> Any:
        """Rows of a sample in its columns, with their ids; how they came about is added up."""
        if not isinstance(self.schema, TableSchema):
            return records
        if self.schema.constrained is not None:
            self.acceptance += Acceptance.of(records.pop(HOW))
        if self.schema.ids:
            stop = start + len(records)
            made = {each.name: _texts(each.placeholders(start, stop, seed=seed)) for each in self.schema.ids}
            records = records.assign(**made)[list(self.schema.order)]
        return records


def _texts(values: list[str]) -> Any:
    """An array of the same type for any number of texts."""
    import pandas as pd

    return pd.Series([*values, ""]).array[:-1]


def _length(records: Any) -> int:
    return len(records[0]) if isinstance(records, tuple) else len(records)


def _cut(records: Any, start: int, stop: int) -> Any:
    if isinstance(records, tuple):
        images, labels = records
        return images[start:stop], None if labels is None else labels[start:stop]
    return records.iloc[start:stop]


def _joined(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], tuple):
        images, labels = zip(*parts, strict=True)
        return np.concatenate(images), None if labels[0] is None else np.concatenate(labels)
    import pandas as pd

    return pd.concat(parts, ignore_index=True)


def _numbered(records: Any, start: int) -> Any:
    """Number the rows of a frame across chunks."""
    if isinstance(records, tuple):
        return records
    import pandas as pd

    return records.set_axis(pd.RangeIndex(start, start + len(records)), axis=0)
