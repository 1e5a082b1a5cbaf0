"""Cut the sample trace of the package out of Debian's source index. The same input gives the same
bytes.

    python scripts/make_sample.py --files files.csv.gz --peer-files peer_files.csv.gz
    python scripts/make_sample.py --sources /var/lib/apt/lists/*_bookworm_main_source_Sources

A peer is a maintainer or uploader of a source package, and a file is one of that package's archive
files. Peers are numbered; names and e-mail addresses are not written. Peers and their files are
taken in the order of a hash, so the cut is even and does not depend on the order of the input. The
sample of the package was cut from the two CSV files. A ``Sources`` index numbers its peers by
itself and changes from day to day, so it gives a similar sample, but not the same one.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import io
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

# name, type, size
File = tuple[str, str, int]
DEFAULT_OUT = (
    Path(__file__).resolve().parent.parent / "src" / "gossamer" / "data" / "debian-sample.csv.gz"
)


def open_text(path: Path) -> io.TextIOBase:
    if path.suffix == ".gz":
        return io.TextIOWrapper(gzip.open(path), encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def file_type(name: str) -> str:
    """The kind of an archive file: dsc, orig.gz, debian.xz, orig-component.xz, diff.gz, tar.xz,
    orig.asc ...
    """
    last = name.rsplit(".", 1)[-1]
    if ".orig-" in name:
        return f"orig-component.{last}"
    for part in ("orig", "debian"):
        if f".{part}.tar" in name:
            return f"{part}.{last}"
    if ".tar." in name:
        return f"tar.{last}"
    return f"diff.{last}" if ".diff." in name else last


def from_csv(files: Path, peer_files: Path) -> Iterator[tuple[str, File]]:
    with open_text(files) as file:
        known = {
            row["file_id"]: (row["name"], row["type"], int(row["size"]))
            for row in csv.DictReader(file)
        }
    with open_text(peer_files) as file:
        for row in csv.DictReader(file):
            yield row["peer_id"], known[row["file_id"]]


def stanzas(path: Path) -> Iterator[dict[str, list[str]]]:
    """The stanzas of a ``Sources`` index: each field with its lines."""
    stanza: dict[str, list[str]] = {}
    field = ""
    with open_text(path) as file:
        for line in file:
            if not line.strip():
                if stanza:
                    yield stanza
                stanza = {}
            elif line[0].isspace():
                stanza[field].append(line.strip())
            else:
                field, _, value = line.partition(":")
                stanza[field] = [value.strip()] if value.strip() else []
    if stanza:
        yield stanza


def people(stanza: dict[str, list[str]]) -> Iterator[str]:
    """Maintainer and uploaders by e-mail address.

    The address tells them apart and is then dropped.
    """
    text = " ".join([*stanza.get("Maintainer", []), ",", *stanza.get("Uploaders", [])])
    for address in re.findall(r"<([^<>]+)>", text):
        yield address.strip().lower()


def from_sources(paths: Iterable[Path]) -> Iterator[tuple[str, File]]:
    found = [stanza for path in paths for stanza in stanzas(path)]
    peers = {
        address: str(number)
        for number, address in enumerate(sorted({a for s in found for a in people(s)}))
    }
    for stanza in found:
        for address in sorted(set(people(stanza))):
            for line in stanza.get("Checksums-Sha256", []):
                _, size, name = line.split()
                yield peers[address], (name, file_type(name), int(size))


def rank(*parts: object) -> bytes:
    return hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()


def cut(
    holdings: Iterable[tuple[str, File]], peers: int, files_max: int
) -> list[tuple[str, str, str, int]]:
    """Some peers, and some files of each, chosen by hash."""
    held: dict[str, set[File]] = {}
    for peer, file in holdings:
        held.setdefault(peer, set()).add(file)
    chosen = sorted(held, key=lambda peer: (rank("peer", peer), peer))[:peers]
    width = len(str(max(map(int, held))))
    return sorted(
        (f"p{int(peer):0{width}d}", *file)
        for peer in chosen
        # A file has the same rank at every peer that holds it, so shared interests survive the cut.
        for file in sorted(held[peer], key=lambda file: (rank("file", file[0]), file))[:files_max]
    )


def write(rows: list[tuple[str, str, str, int]], out: Path) -> int:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["peer", "name", "type", "size"])
    writer.writerows(rows)
    data = gzip.compress(text.getvalue().encode(), 9, mtime=0)
    out.write_bytes(data)
    return len(data)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=Path, help="CSV of file_id, name, type, size, ...")
    parser.add_argument("--peer-files", type=Path, help="CSV of peer_id, file_id")
    parser.add_argument(
        "--sources", type=Path, nargs="+", help="Debian `Sources` index files, plain or .gz"
    )
    parser.add_argument(
        "--peers", type=int, default=1000, help="the number of peers (default %(default)s)"
    )
    parser.add_argument(
        "--files-max",
        type=int,
        default=4,
        help="the most files of a peer (default %(default)s)",
    )
    parser.add_argument(
        "--out", type=Path, default=DEFAULT_OUT, help="default: the sample shipped in the package"
    )
    args = parser.parse_args(argv)
    if args.sources and not (args.files or args.peer_files):
        holdings = from_sources(args.sources)
    elif args.files and args.peer_files and not args.sources:
        holdings = from_csv(args.files, args.peer_files)
    else:
        parser.error("give either --sources, or both --files and --peer-files")
    rows = cut(holdings, args.peers, args.files_max)
    size = write(rows, args.out)
    peers, files = len({row[0] for row in rows}), len({row[1:] for row in rows})
    print(
        f"{args.out}: {len(rows):,} rows, {peers:,} peers, {files:,} files, {size:,} bytes",
        file=sys.stderr,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
