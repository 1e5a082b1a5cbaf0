"""Ships the package to executors, and makes a Spark home that can be written to.

On ``local[*]`` tasks run in the driver's environment and import the same modules. On any other
master the executors get this very package as a zip file. Spark puts it first on their path, before
any version that is installed there. The libraries that the package needs (msgspec, google-re2,
numpy, pyarrow, pandas) must be installed on the executors.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time stamp of every file in the zip: the same package gives the same bytes."""


def is_local(master: str) -> bool:
    """Whether tasks run on the driver's own machine and in its environment."""
    return master == "local" or master.startswith("local[")


def package(folder: Path) -> Path:
    """Pack this package as a zip file that Python can import from.

    Its name is a hash of its content.
    """
    import gossamer

    root = Path(gossamer.__file__).parent
    files = sorted(
        path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    )
    # Python cannot load a compiled module from a zip file, and executors need none.
    files = [path for path in files if path.suffix not in (".so", ".pyd")]
    digest = hashlib.blake2b(digest_size=6)
    for path in files:
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    packed = folder / f"gossamer-{digest.hexdigest()}.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            entry = zipfile.ZipInfo(f"gossamer/{path.relative_to(root).as_posix()}", _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
    return packed


def ship(spark: SparkSession) -> Path:
    """Hand the package to every executor, now and later."""
    folder = Path(tempfile.mkdtemp(prefix="gossamer-package-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    packed = package(folder)
    spark.sparkContext.addPyFile(str(packed))
    return packed


def spark_home() -> None:
    """Give ``local-cluster`` a SPARK_HOME of its own, because its workers write below
    SPARK_HOME.
    """
    if os.environ.get("SPARK_HOME"):
        return
    import pyspark

    home = Path(tempfile.mkdtemp(prefix="gossamer-spark-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    for path in Path(pyspark.__file__).parent.iterdir():
        if path.name != "work":
            (home / path.name).symlink_to(path)
    os.environ["SPARK_HOME"] = str(home)
