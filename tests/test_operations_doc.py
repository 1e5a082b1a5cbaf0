"""docs/operations.md is true: a node takes its configuration, has its metrics and prints its
messages.
"""

from __future__ import annotations

import configparser
import re
import tomllib
from pathlib import Path

import pytest

import gossamer
from gossamer.cli.options import BY_NAME
from livenet import GENEVA, WEATHER, go

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "operations.md").read_text()


def block(kind: str) -> str:
    [found] = re.findall(rf"```{kind}\n(.*?)```", TEXT, re.S)
    return str(found)


def test_the_configuration_has_options_that_exist_and_values_that_they_take() -> None:
    for name, value in tomllib.loads(block("toml")).items():
        BY_NAME[name].kind.value(value)


def test_the_unit_can_be_read_and_its_variables_exist() -> None:
    unit = configparser.ConfigParser(strict=True, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(block("ini"))
    assert unit["Service"]["Type"] == "notify"
    assert "gossamer node --config" in unit["Service"]["ExecStart"]
    for variable in re.findall(r"GOSSAMER_([A-Z_]+)=", block("dockerfile")):
        assert variable.lower() in BY_NAME


@pytest.mark.live
def test_the_table_of_metrics_is_what_a_node_has() -> None:
    pytest.importorskip("prometheus_client", reason="the extra 'metrics' is not installed")
    from gossamer.net.metrics import Metrics

    async def main() -> str:
        async with gossamer.Node() as node:
            await node.advertise("weather", WEATHER)
            async with node.subscribe("weather"):
                await (await node.publish("weather", GENEVA))
            metrics = Metrics()
            metrics.node = node
            return metrics.text().decode()

    printed = go(main())
    exposed = set(re.findall(r"^# TYPE (gossamer_\w+)", printed, re.M))
    listed = {
        name
        for row in re.findall(r"^\| (`gossamer_.*?) \|", TEXT, re.M)
        for name in re.findall(r"`(\w+)`", row)
    }
    assert listed == exposed
    assert 'gossamer_events_published_total{topic="weather"} 1.0' in printed
    assert 'gossamer_events_delivered_total{topic="weather"} 1.0' in printed


def test_messages_of_the_table_of_troubles_are_in_the_program() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "src" / "gossamer").rglob("*.py"))
    # Joins texts that run over two lines.
    source = re.sub(r"\"\s*\n\s*f?\"", "", source)
    troubles = TEXT.split("| Message or symptom |")[1]
    for quoted in re.findall(r"^\| `([^`]+)`", troubles, re.M):
        for part in re.split(
            r"\.\.\.|\b(?:NAME|HOST:PORT|N|10 s|'lisen'|'listen')\b",
            quoted.replace("'lisen'", "...").replace("'listen'", "..."),
        ):
            words = part.strip(" ():;?")
            assert len(words) < 4 or words in source or words == "database is locked", words
