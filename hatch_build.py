"""Compiles src/gossamer/filters/_native.pyx with Cython when gossamer is built or installed.

Nothing is compiled without a C compiler, or with GOSSAMER_PURE=1 in the environment. The package is
pure Python then. It does the same and is slower (filters/loops.py). The build succeeds either way
and reports which of the two it did.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODULE = "gossamer.filters._native"
SOURCE = Path("src", *MODULE.split(".")).with_suffix(".pyx")


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Put the extension beside its source in an editable install, and into its package in a
        wheel.
        """
        self._folder = TemporaryDirectory(prefix="gossamer-build-")
        root, editable = Path(self.root), version == "editable"
        why = refusal()
        if why:
            self.app.display_info(f"{why}: nothing is compiled")
            return
        try:
            # An existing extension belongs to an older source. Other versions of Python have files
            # of their own.
            if editable:
                (root / SOURCE).with_name(
                    f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
                ).unlink(missing_ok=True)
            made = compile_extension(
                root, Path(self._folder.name), root / "src" if editable else None
            )
        except (
            Exception,
            SystemExit,
            # Without a compiler setuptools raises SystemExit.
        ) as error:
            self.app.display_warning(
                f"gossamer stays pure Python, which is slower: {MODULE} was not compiled ({error})"
            )
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        if not editable:
            build_data["force_include"][str(made)] = (
                f"{'/'.join(MODULE.split('.')[:-1])}/{made.name}"
            )

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        self._folder.cleanup()


def refusal() -> str:
    """The reason to compile nothing, or an empty text."""
    if os.environ.get("GOSSAMER_PURE"):
        return "GOSSAMER_PURE is set"
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "the compiled loops are for CPython with its lock"
    return ""


def compile_extension(root: Path, folder: Path, into: Path | None) -> Path:
    """Compile the extension for the running Python, into its package below ``into`` or into the
    folder.
    """
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    # Compilers would warn only of Cython's own lines.
    flags = [] if sys.platform == "win32" else ["-O3", "-g0", "-w"]
    extension = Extension(MODULE, [str(root / SOURCE)], extra_compile_args=flags)
    modules = cythonize([extension], build_dir=str(folder), quiet=True)
    command = build_ext(Distribution({"name": "gossamer", "ext_modules": modules}))
    command.build_temp, command.build_lib = str(folder), str(into or folder / "lib")
    command.ensure_finalized()
    command.run()
    return Path(command.get_ext_fullpath(MODULE))


__all__ = ["CustomBuildHook"]
