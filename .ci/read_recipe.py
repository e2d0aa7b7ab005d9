"""Reads the conda recipe as rattler-build does, which names what is wrong with it."""

from __future__ import annotations

from pathlib import Path

from rattler_build import Stage0Recipe

RECIPE = Path(__file__).with_name("conda") / "recipe.yaml"

for variant in Stage0Recipe.from_file(str(RECIPE)).render():
    print(f"{RECIPE.name}: {variant.recipe.package.name} {variant.recipe.package.version}")
