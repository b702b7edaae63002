"""All targets, by name."""

from __future__ import annotations

from tests.fuzz import private_targets, release_targets, schema_targets
from tests.fuzz.harness import Target

TARGETS: dict[str, Target] = {
    target.name: target for target in (*schema_targets.TARGETS, *release_targets.TARGETS, *private_targets.TARGETS)
}
